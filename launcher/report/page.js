"use strict";
// Each drawing: the pointer or the arrow keys read values; a drag, + and - enlarge, 0 or a double click shows all.
const data = JSON.parse(document.getElementById("data").textContent);

const spelt = (v) => {
  if (v === null) return "not a number";
  const size = Math.abs(v);
  return size >= 1e15 || (v && size < 1e-3) ? v.toExponential(3) : (+v.toPrecision(6)).toLocaleString("en");
};

function ticks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && found.length < 12; i++) found.push(i * step);
  return found;
}

function svg(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function bind(plot) {
  const low = +plot.dataset.from, high = +plot.dataset.to, height = +plot.dataset.height, unit = plot.dataset.unit;
  const series = data[plot.id], hidden = new Set();
  const find = (selector) => plot.querySelector(selector);
  const view = find(".view"), axis = find(".axis"), cursor = find(".cursor");
  const readout = plot.nextElementSibling, hint = readout.textContent;
  let from = low, to = high, at = null;
  const share = (x) => (x - from) / (to - from);
  const percent = (x) => `${100 * share(x)}%`;

  function draw() {
    const scale = 1000 / (high - low);
    view.setAttribute("viewBox", `${(from - low) * scale} 0 ${(to - from) * scale} ${height}`);
    axis.replaceChildren(...ticks(from, to).flatMap((x) => [
      svg("line", { x1: percent(x), x2: percent(x), y1: 0, y2: height, class: "grid" }),
      svg("text", { x: percent(x), y: height + 16, class: "x" }, spelt(x)),
    ]));
    for (const mark of plot.querySelectorAll("[data-x]")) {
      const x = +mark.dataset.x;
      mark.setAttribute(mark.tagName === "circle" ? "cx" : "x", percent(x));
      mark.style.display = share(x) < 0 || share(x) > 1 ? "none" : "";
    }
    for (const mark of plot.querySelectorAll("[data-series]"))
      mark.style.visibility = hidden.has(mark.dataset.series) ? "hidden" : "";
    read(at);
  }

  function zoom(begin, end) {
    if (end - begin < (high - low) / 1e5) return;
    from = Math.max(low, begin);
    to = Math.min(high, end);
    draw();
  }

  function read(x) {
    at = x === null ? null : Math.min(to, Math.max(from, x));
    cursor.style.visibility = at === null ? "hidden" : "visible";
    if (at === null) return void (readout.textContent = hint);
    const shown = series.filter((one, i) => !hidden.has(String(i)) && one.points.length);
    const nearest = shown.map((one) => one.points.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a)));
    if (nearest.length) at = nearest.reduce((a, b) => (Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a))[0];
    cursor.setAttribute("x1", percent(at));
    cursor.setAttribute("x2", percent(at));
    const values = shown.flatMap((one, i) => (nearest[i][0] === at ? [`${one.name} ${spelt(nearest[i][1])}`] : []));
    readout.textContent = [`${unit} ${spelt(at)}`, ...values].join(" · ");
  }

  function next(by) {
    const all = [...new Set(series.flatMap((one) => one.points.map((p) => p[0])))].filter((x) => x >= from && x <= to);
    all.sort((a, b) => a - b);
    if (!all.length) return read(at === null ? from : at + (by * (to - from)) / 50);
    const place = at === null ? -1 : all.indexOf(at);
    read(all[Math.min(all.length - 1, Math.max(0, place + by))]);
  }

  const middle = () => at ?? (from + to) / 2;
  const around = (factor) => zoom(middle() - (middle() - from) * factor, middle() + (to - middle()) * factor);
  const keys = {
    ArrowRight: () => next(1), ArrowLeft: () => next(-1), "+": () => around(0.5), "=": () => around(0.5),
    "-": () => around(2), 0: () => zoom(low, high), Escape: () => read(null),
  };
  plot.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  const under = (event) => {
    const box = view.getBoundingClientRect(), wide = find(".frame").getBoundingClientRect();
    return from + ((event.clientX - wide.left) / (wide.width || box.width)) * (to - from);
  };
  let began = null;
  plot.addEventListener("pointermove", (event) => read(under(event)));
  plot.addEventListener("pointerleave", () => { began = null; read(null); });
  plot.addEventListener("pointerdown", (event) => { began = event.pointerType === "mouse" ? under(event) : null; });
  plot.addEventListener("pointerup", (event) => {
    const ended = under(event);
    if (began !== null && Math.abs(ended - began) > (to - from) / 50) zoom(Math.min(began, ended), Math.max(began, ended));
    began = null;
  });
  plot.addEventListener("dblclick", () => zoom(low, high));
  for (const button of plot.parentElement.querySelectorAll("button[data-series]"))
    button.addEventListener("click", () => {
      const index = button.dataset.series;
      if (!hidden.delete(index)) hidden.add(index);
      button.setAttribute("aria-pressed", String(!hidden.has(index)));
      draw();
    });
}

document.querySelectorAll(".plot").forEach(bind);
