"use strict";
// Draws the charts in the colours of the page, and only the runs that were chosen.
(function () {
  const {charts, palette, dashes, most} = JSON.parse(document.getElementById("charts").textContent);
  const LIGHT = {text: "#1c2430", soft: "#5a6675", grid: "#e4e8ed", card: "#ffffff"};
  const DARK = {text: "#e4e9ef", soft: "#9aa7b5", grid: "#2f3945", card: "#1a2029"};
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const CONFIG = {
    displaylogo: false, displayModeBar: "hover",
    modeBarButtonsToRemove: ["sendDataToCloud", "sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
  };
  const boxes = Array.from(document.querySelectorAll("#choice input"));
  const PRINT_PX = 690, LETTER_PX = 7.3;

  function chosen() {
    return boxes.filter((box) => box.checked).map((box) => Number(box.value));
  }

  // The place of a side among those chosen gives its colour, for there are only so many.
  function recoloured(trace, rank) {
    const colour = palette[rank % palette.length];
    const copy = {...trace};
    if (trace.line) copy.line = {...trace.line, color: colour, dash: dashes[rank % dashes.length]};
    if (trace.marker) copy.marker = {...trace.marker, color: colour};
    if (trace.error_y) copy.error_y = {...trace.error_y, color: colour};
    return copy;
  }

  function picked(chart) {
    if (!chart.is_choice || !boxes.length) return chart.figure;
    const sides = chosen();
    const rank = (name) => sides.indexOf(Number(name.slice(5)));
    const isShown = (mark) => !mark.name.startsWith("side-") || rank(mark.name) >= 0;
    const layout = {...chart.figure.layout};
    layout.annotations = (layout.annotations || []).filter(isShown);
    layout.shapes = (layout.shapes || []).filter(isShown).map((shape) => {
      if (!shape.name.startsWith("side-")) return shape;
      const colour = palette[rank(shape.name) % palette.length];
      const copy = {...shape, line: {...shape.line, color: colour}};
      if (shape.fillcolor) copy.fillcolor = colour;
      return copy;
    });
    const data = chart.figure.data
      .filter((trace) => sides.includes(trace.meta.side))
      .map((trace) => recoloured(trace, sides.indexOf(trace.meta.side)));
    return {data, layout};
  }

  // Rows that the legend takes, so that its room is set aside before anything is placed.
  function legendRows(data, layout, room) {
    const names = new Set(data.filter((trace) => trace.showlegend !== false).map((trace) => trace.name));
    if (layout.showlegend === false || (!layout.showlegend && names.size < 2)) return 0;
    const title = ((layout.legend || {}).title || {}).text || "";
    let rows = 1, used = title.length * LETTER_PX;
    for (const name of names) {
      const size = 48 + name.length * LETTER_PX;
      if (used && used + size > room) { rows += 1; used = 0; }
      used += size;
    }
    return rows;
  }

  // Runs of one scenario have their events at about the same time: one number for all of them.
  function apart(annotations, data) {
    const ends = data.flatMap((trace) => [trace.x[0], trace.x[trace.x.length - 1]]).filter(Number.isFinite);
    const close = (Math.max(...ends) - Math.min(...ends)) / 60;
    return annotations.filter((one, i) => !annotations.slice(0, i).some((other) =>
      other.text === one.text && other.yref === one.yref && Math.abs(other.x - one.x) < close && (one.name || "").startsWith("side-")));
  }

  // Margins are computed and not left to Plotly, whose second pass moves labels after the marks.
  function themed(data, layout, theme, width) {
    const {above = 0, label = 0} = layout.meta || {};
    const left = Math.min(0.45 * width, Math.max(66, label * LETTER_PX + 18));
    const rows = legendRows(data, layout, width - left - 18);
    const top = 14 + above + Math.max(1, rows) * 21, bottom = 52;
    const height = (layout.height || 400) + rows * 21;
    const result = {
      ...layout,
      height, width, autosize: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: {l: left, r: 18, t: top, b: bottom},
      font: {family: "system-ui, sans-serif", size: 13, color: theme.text},
      legend: {
        ...layout.legend, orientation: "h", x: 0, xanchor: "left",
        y: 1 + (above + 4) / (height - top - bottom), yanchor: "bottom", font: {size: 13},
      },
      modebar: {bgcolor: "rgba(0,0,0,0)", color: theme.grid, activecolor: theme.soft},
      hoverlabel: {bgcolor: theme.card, bordercolor: theme.soft, font: {color: theme.text}, align: "left", namelength: -1},
    };
    for (const key of Object.keys(layout)) {
      if (!/^[xy]axis\d*$/.test(key)) continue;
      result[key] = {
        gridcolor: theme.grid, linecolor: theme.soft, zerolinecolor: theme.grid, tickcolor: theme.soft,
        automargin: false, separatethousands: true, exponentformat: "none", ...layout[key],
        title: {font: {size: 13}, standoff: 8, ...layout[key].title},
      };
    }
    result.annotations = apart(layout.annotations || [], data).map((a) => ({font: {color: theme.soft, size: 12}, ...a}));
    return result;
  }

  function draw(theme, width) {
    for (const chart of charts) {
      const place = document.getElementById("chart-" + chart.id);
      const {data, layout} = picked(chart);
      // Anew: a legend that is only changed keeps its old place.
      Plotly.purge(place);
      Plotly.newPlot(place, data, themed(data, layout, theme, width || place.clientWidth), CONFIG);
    }
  }

  function redraw() { draw(dark.matches ? DARK : LIGHT); }

  for (const box of boxes) {
    box.addEventListener("change", () => {
      const full = chosen().length >= most;
      for (const other of boxes) other.disabled = full && !other.checked;
      redraw();
    });
  }
  dark.addEventListener("change", redraw);
  let waiting = 0;
  window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redraw, 150); });
  window.addEventListener("beforeprint", () => draw(LIGHT, PRINT_PX));
  window.addEventListener("afterprint", redraw);
  redraw();
})();
