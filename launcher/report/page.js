"use strict";
// Each drawing: the pointer or the arrow keys read values; a drag, + and - enlarge, 0 or a double click shows all.
let data = JSON.parse(document.getElementById("data").textContent);
// What the reader has chosen in each drawing, by its label: it outlives a drawing when the page is renewed.
const views = new Map();

const spelt = (v) => {
  if (v === null) return "not a number";
  const size = Math.abs(v);
  return size >= 1e15 || (v && size < 1e-3) ? v.toExponential(3) : v.toLocaleString("en", { maximumSignificantDigits: 6 });
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
  const series = data[plot.id], label = plot.getAttribute("aria-label"), kept = views.get(label);
  const place = (name) => String(series.findIndex((one) => one.name === name));
  const hidden = new Set([...(kept ? kept.hidden : [])].map((name) => (+place(name) < 0 ? name : place(name))));
  const find = (selector) => plot.querySelector(selector);
  const view = find(".view"), axis = find(".axis"), cursor = find(".cursor");
  const readout = plot.nextElementSibling, hint = readout.textContent;
  let from = low, to = high, at = null;
  if (kept && kept.from < high && kept.to > low) [from, to] = [Math.max(low, kept.from), Math.min(high, kept.to)];
  const share = (x) => (x - from) / (to - from);
  const percent = (x) => `${100 * share(x)}%`;

  function draw() {
    views.set(label, {
      from: from > low ? from : -Infinity, to: to < high ? to : Infinity,
      hidden: [...hidden].map((i) => (series[i] ? series[i].name : i)),
    });
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
  for (const button of plot.parentElement.querySelectorAll("button[data-series]")) {
    const index = button.dataset.series;
    button.setAttribute("aria-pressed", String(!hidden.has(index)));
    button.addEventListener("click", () => {
      if (!hidden.delete(index)) hidden.add(index);
      button.setAttribute("aria-pressed", String(!hidden.has(index)));
      draw();
    });
  }
  if (kept) draw();
}

// Puts the content of a newer page in the place of this one's; what is open, scrolled, enlarged and in focus stays so.
function renew(page) {
  const named = (element) => element.getAttribute("aria-label") || element.textContent.replace(/[\d,]+/g, "#");
  const each = (selector, use) => {
    const count = {};
    for (const one of document.querySelectorAll(selector)) {
      const name = named(one);
      use(one, `${selector} ${name} ${(count[name] = (count[name] || 0) + 1)}`);
    }
  };
  const open = new Map(), scrolled = new Map(), top = window.scrollY;
  const focus = document.activeElement.classList.contains("plot") ? named(document.activeElement) : null;
  each("summary", (one, key) => open.set(key, one.parentElement.open));
  each(".scroll", (one, key) => scrolled.set(key, [one.scrollLeft, one.scrollTop]));
  data = JSON.parse(page.getElementById("data").textContent);
  document.querySelector("main").replaceWith(document.importNode(page.querySelector("main"), true));
  document.querySelectorAll(".plot").forEach(bind);
  each("summary", (one, key) => { if (open.has(key)) one.parentElement.open = open.get(key); });
  each(".scroll", (one, key) => { if (scrolled.has(key)) [one.scrollLeft, one.scrollTop] = scrolled.get(key); });
  each(".plot", (one) => { if (named(one) === focus) one.focus({ preventScroll: true }); });
  window.scrollTo(window.scrollX, top);
}

// Of a page that is served: asks for a newer one, at most every two seconds, and less often where making it takes long.
async function watch(version) {
  const state = document.getElementById("live");
  for (let pause = 2000; ; ) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    // Neither unseen, nor while the reader selects or drags.
    if (document.hidden || !window.getSelection().isCollapsed || document.querySelector(".plot:active")) continue;
    const began = performance.now();
    try {
      const answer = await fetch(location.pathname, { headers: { "If-None-Match": version }, cache: "no-store" });
      const text = await answer.text();
      if (answer.ok) {
        renew(new DOMParser().parseFromString(text, "text/html"));
        version = answer.headers.get("ETag");
      }
      state.textContent = answer.ok || answer.status === 304 ? "live" : text;
    } catch (error) {
      state.textContent = "not renewed: nothing answers at this address any more";
    }
    pause = Math.max(2000, 5 * (performance.now() - began));
  }
}

document.querySelectorAll(".plot").forEach(bind);
if (document.documentElement.dataset.version) watch(document.documentElement.dataset.version);
