"""Functions of the public API. `import penstock` exports them; the command line calls them.

runs          run a scenario, analyze run directories, compare them
evidence      the result of these: runs with metrics, verdict and report
experiments   measure what a cluster can do
calibration   measure the short runs that a model is fitted to
observations  runs and facts as the input of a model
models        fit models, read and show them
prediction    predict scenarios, alone or beside measured runs
landing       land topics in the lake
lake          audit, compact and reland a lake
capacity      measure the capacity of a lane
arguments     checks that they share
files         read a file as a value; JSON schemas
plugin_list   the plug-ins that are installed
testbeds      clusters that outlive the process which started them
machine       what this machine can do
kubernetes    manifests of a pipeline
autoscaling   let the number of lanes follow the load
"""
