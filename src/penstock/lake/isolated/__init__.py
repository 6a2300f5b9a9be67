"""Decodes in a separate process, for code that may loop, exit or exhaust memory.

    wire           messages between a lane and its decoder process
    isolation      the lane's side: values in, columns out, even if the process dies
    process        one decoder process, as the lane sees it
    __main__       the decoder process itself
    rows           values → rows → columns, inside that process
    avro_rows, function_rows   the two kinds of rows
    avro_check, avro_logical, avro_defaults   what fastavro gets wrong
    strict         what Arrow gets wrong in a function's rows

The lane's process has threads (of Kafka's client), so it must not fork; a new Python is started
instead. It imports this package and not `decoders`, which takes a second longer.
"""
