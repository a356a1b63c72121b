"use strict";
// Small pieces that the pages share: numbers as text, and one kind of chart with tooltips.
//
// Why no charting library: uPlot (51 kB) wants ascending x, while natural accuracy is not monotone in
// theta, and draws on a canvas, which has no text for screen readers and prints as a bitmap. Chart.js
// (210 kB) is a canvas too. Observable Plot (209 kB, and 281 kB of d3) draws SVG, but knows neither
// dragging along a curve nor the keyboard. All of this file is about 12 kB; what each chart shows
// (figures.js, wall.js) would have to be said to a library as well.

const percent = (share, digits = 1) => (100 * share).toFixed(digits);
// Radii are promises: they are only ever rounded down.
const downwards = (value, digits = 3) => (Math.floor(value * 10 ** digits + 1e-9) / 10 ** digits).toFixed(digits);
const byId = id => document.getElementById(id);

const SVG = ["svg", "g", "path", "line", "rect", "circle", "text", "polyline", "title", "tspan"];

function element(name, attributes = {}, ...children) {
  const node = SVG.includes(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Every actor has a colour and a shape, so that neither has to be told apart by colour alone.
const SHAPES = {
  circle: s => `M${-s} 0A${s} ${s} 0 1 0 ${s} 0A${s} ${s} 0 1 0 ${-s} 0Z`,
  square: s => `M${-s * 0.88} ${-s * 0.88}H${s * 0.88}V${s * 0.88}H${-s * 0.88}Z`,
  triangle: s => `M0 ${-s * 1.15}L${s * 1.1} ${s * 0.85}H${-s * 1.1}Z`,
  diamond: s => `M0 ${-s * 1.2}L${s * 1.2} 0L0 ${s * 1.2}L${-s * 1.2} 0Z`,
  bar: s => `M${-s} ${-s * 0.4}H${s}V${s * 0.4}H${-s}Z`,
  cross: s => `M${-s} ${-s}L${s} ${s}M${s} ${-s}L${-s} ${s}`,
};

function ticks(low, high, wanted = 5) {
  const rough = (high - low) / wanted,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= rough * 0.999) ?? 10 * power;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found;
}

// ---- tooltips: one box for the whole page, placed beside what it speaks of

const tip = {
  box: null,
  // words: lines of text, the first of them the title; where: gives the place in the window; spoken: also for screen readers
  show(words, where, spoken) {
    this.box ??= document.body.appendChild(element("div", {class: "tip", role: "tooltip"}));
    this.box.replaceChildren(...words.flatMap((line, k) => (k ? [element("br"), line] : [element("b", {}, line)])));
    this.box.hidden = false;
    this.where = where;
    this.place();
    if (spoken) {
      this.live ??= document.body.appendChild(element("p", {class: "visually-hidden", role: "status", id: "tip-spoken"}));
      this.live.textContent = words.join(", ");
    }
  },
  place() {
    if (!this.box || this.box.hidden) return;
    const [x, y] = this.where(),
      {width, height} = this.box.getBoundingClientRect(),
      room = document.documentElement.clientWidth;
    this.box.style.left = `${Math.max(4, Math.min(x + 14, room - width - 6))}px`;
    this.box.style.top = `${y - height - 12 > 4 ? y - height - 12 : y + 18}px`;
  },
  hide() {
    if (this.box) this.box.hidden = true;
  },
};
addEventListener("scroll", () => tip.place(), {passive: true, capture: true});

const NEAR = 36; // pixels from a point within which the pointer shows its tooltip

class Chart {
  // spec: {x, y: {low, high, label, format}, height, draw(chart), move(chart) -> description,
  //        pick(chart, x, y), points(chart) -> [{xs, ys, words(k) -> lines, pick(k)}]}
  // `points` are what tooltips speak of: the nearest to the pointer, or one after the other by the arrow keys.
  constructor(host, spec) {
    Object.assign(this, {host, spec, at: null});
    if (spec.pick) this.#listen();
    if (spec.points) this.#explain();
    new ResizeObserver(() => {
      if (host.clientWidth !== this.width) this.render();
    }).observe(host);
  }

  // Several charts at once: their widths are measured before the first is drawn, or each would lay out the page anew.
  static renderAll(charts) {
    const widths = charts.map(chart => chart.host.clientWidth);
    charts.forEach((chart, k) => chart.render(widths[k]));
  }

  render(measured = this.host.clientWidth) {
    const {x, y, height = 250} = this.spec;
    this.width = measured;
    if (!this.width) return;
    this.margin = {left: 40, right: 12, top: 20, bottom: 40, ...this.spec.margin};
    const {left, right, top, bottom} = this.margin,
      width = this.width;
    this.X = value => left + ((value - x.low) / (x.high - x.low)) * (width - left - right);
    this.Y = value => height - bottom - ((value - y.low) / (y.high - y.low)) * (height - top - bottom);
    this.svg = element("svg", {viewBox: `0 0 ${width} ${height}`, role: "img"});
    this.layer = this.svg;
    this.#axes(x, y, width, height);
    this.spec.draw(this);
    this.moving = this.svg.appendChild(element("g"));
    this.pointer = this.svg.appendChild(element("g"));
    this.host.replaceChildren(this.svg);
    this.move();
  }

  move() {
    if (!this.moving) return;
    this.moving.replaceChildren();
    this.layer = this.moving;
    this.svg.setAttribute("aria-label", this.spec.move(this) ?? "");
  }

  #axes(x, y, width, height) {
    const {left, right, top, bottom} = this.margin,
      base = height - bottom;
    for (const value of y.ticks ?? ticks(y.low, y.high, Math.max(2, Math.round((height - top - bottom) / 45)))) {
      this.add("line", {class: "grid", x1: left, x2: width - right, y1: this.Y(value), y2: this.Y(value)});
      this.text(left - 8, this.Y(value) + 4, y.format(value), {"text-anchor": "end"});
    }
    for (const value of x.ticks ?? ticks(x.low, x.high, Math.max(2, Math.round((width - left - right) / 75)))) {
      this.add("line", {class: "axis", x1: this.X(value), x2: this.X(value), y1: base, y2: base + 4});
      this.text(this.X(value), base + 17, x.format(value), {"text-anchor": "middle"});
    }
    this.add("line", {class: "axis", x1: left, x2: width - right, y1: base, y2: base});
    if (x.label) this.text(width - right, height - 5, x.label, {"text-anchor": "end"});
    if (y.label) this.text(0, 9, y.label);
  }

  add(name, attributes, ...children) {
    return this.layer.appendChild(element(name, attributes, ...children));
  }
  text(x, y, words, attributes = {}) {
    return this.add("text", {x, y, ...attributes}, words);
  }

  line(xs, ys, colour, attributes = {}) {
    const points = Array.from(xs, (x, i) => `${this.X(x).toFixed(2)},${this.Y(ys[i]).toFixed(2)}`).join(" ");
    return this.add("polyline", {
      points,
      fill: "none",
      stroke: colour,
      "stroke-width": 2,
      "stroke-linejoin": "round",
      ...attributes,
    });
  }

  band(xs, lows, highs, colour) {
    const edge = ys => Array.from(xs, (x, i) => `${this.X(x).toFixed(2)} ${this.Y(ys[i]).toFixed(2)}`);
    this.add("path", {d: `M${edge(lows).concat(edge(highs).reverse()).join("L")}Z`, fill: colour, opacity: 0.14});
  }

  mark(shape, x, y, colour, size = 5.5) {
    return this.add("path", {
      d: SHAPES[shape](size),
      transform: `translate(${this.X(x).toFixed(2)} ${this.Y(y).toFixed(2)})`,
      fill: colour,
      stroke: "var(--paper)",
      "stroke-width": 1.2,
    });
  }

  // The working point, with its intervals as whiskers.
  point(x, y, colour, xInterval, yInterval) {
    const whisker = {stroke: colour, "stroke-width": 1.2, opacity: 0.8};
    if (xInterval)
      this.add("line", {x1: this.X(xInterval[0]), x2: this.X(xInterval[1]), y1: this.Y(y), y2: this.Y(y), ...whisker});
    if (yInterval)
      this.add("line", {x1: this.X(x), x2: this.X(x), y1: this.Y(yInterval[0]), y2: this.Y(yInterval[1]), ...whisker});
    this.add("circle", {cx: this.X(x), cy: this.Y(y), r: 7, fill: "var(--panel)", stroke: colour, "stroke-width": 3});
  }

  // A vertical line at x, named at its head.
  rule(x, words) {
    const {top, bottom} = this.margin,
      height = this.spec.height ?? 250,
      right = this.X(x) > this.width * 0.72;
    this.add("line", {
      x1: this.X(x),
      x2: this.X(x),
      y1: top - 4,
      y2: height - bottom,
      stroke: "var(--ink)",
      "stroke-dasharray": "2 3",
    });
    this.text(this.X(x) + (right ? -5 : 5), top + 5, words, {class: "strong", "text-anchor": right ? "end" : "start"});
  }

  // Where an event happened, in the units of the drawing.
  #where(event) {
    const box = this.svg.getBoundingClientRect(),
      scale = this.width / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  #listen() {
    this.host.classList.add("drag");
    const pick = event => this.spec.pick(this, ...this.#where(event));
    this.host.addEventListener("pointerdown", event => {
      this.host.setPointerCapture(event.pointerId);
      pick(event);
    });
    this.host.addEventListener("pointermove", event => {
      if (event.buttons & 1) pick(event);
    });
  }

  #explain() {
    const {host} = this;
    host.tabIndex = 0;
    host.setAttribute("role", "group");
    host.setAttribute("aria-roledescription", "chart; the arrow keys read its points");
    host.addEventListener("pointermove", event => {
      if (event.buttons & 1 || !this.svg) return this.#forget();
      const found = this.#nearest(...this.#where(event));
      if (found) this.#tell(found, false);
      else this.#forget();
    });
    host.addEventListener("pointerleave", () => this.#forget());
    host.addEventListener("blur", () => this.#forget());
    host.addEventListener("keydown", event => this.#step(event));
  }

  #nearest(px, py) {
    let found = null,
      least = NEAR ** 2;
    this.spec.points(this).forEach((series, s) => {
      for (let k = 0; k < series.xs.length; k++) {
        const distance = (this.X(series.xs[k]) - px) ** 2 + (this.Y(series.ys[k]) - py) ** 2;
        if (distance < least) [found, least] = [[s, k], distance];
      }
    });
    return found;
  }

  // Left and right follow a series, up and down change it; Enter does what a click on the point would do.
  #step(event) {
    const all = this.spec.points(this).filter(series => series.xs.length);
    if (!all.length) return;
    let [s, k] = this.at ?? [0, all[0].start ?? 0];
    if (this.at) {
      const jump = {ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10}[event.key],
        turn = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (jump) k += jump;
      else if (turn) s = (s + turn + all.length) % all.length;
      else if (event.key === "Home") k = 0;
      else if (event.key === "End") k = Infinity;
      else if (event.key === "Enter" && all[s].pick) all[s].pick(k);
      else if (event.key === "Escape") return this.#forget();
      else return;
    } else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
    k = Math.max(0, Math.min(all[s].xs.length - 1, k));
    this.#tell([s, k], true);
    this.at = [s, k];
  }

  #tell([s, k], spoken) {
    const series = this.spec.points(this).filter(one => !spoken || one.xs.length)[s],
      x = this.X(series.xs[k]),
      y = this.Y(series.ys[k]),
      where = () => {
        const box = this.svg.getBoundingClientRect(),
          scale = box.width / this.width;
        return [box.left + x * scale, box.top + y * scale];
      };
    this.pointer.replaceChildren(element("circle", {class: "pointed", cx: x, cy: y, r: 5}));
    tip.show(series.words(k), where, spoken);
  }

  #forget() {
    this.at = null;
    this.pointer?.replaceChildren();
    tip.hide();
  }
}

// The step whose point on a curve lies nearest to the pointer; ties and crossings stay close to the current step.
function nearest(chart, xs, ys, px, py, current) {
  let best = current,
    least = Infinity;
  for (let t = 0; t < xs.length; t++) {
    const distance = (chart.X(xs[t]) - px) ** 2 + (chart.Y(ys[t]) - py) ** 2 + Math.abs(t - current) * 0.01;
    if (distance < least) [best, least] = [t, distance];
  }
  return best;
}

function icon(shape, colour, line) {
  const svg = element("svg", {width: line ? 30 : 14, height: 14, "aria-hidden": "true"}),
    middle = line ? 15 : 7;
  if (line)
    svg.append(
      element("line", {x1: 1, x2: 29, y1: 7, y2: 7, stroke: colour, "stroke-width": 2.2, "stroke-dasharray": line}),
    );
  const stroke = shape === "cross" ? {stroke: colour, "stroke-width": 2} : {fill: colour};
  if (shape) svg.append(element("path", {d: SHAPES[shape](4.8), transform: `translate(${middle} 7)`, ...stroke}));
  return svg;
}

function extent(values, pad = 0.04) {
  const low = Math.min(...values),
    high = Math.max(...values),
    room = Math.max((high - low) * pad, 0.01);
  return [low - room, high + room];
}
