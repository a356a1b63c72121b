// Who answered: the routes' shares, the wall of images, and one image's own numbers.

// ---- the routes

function drawRoutes() {
  const shares = ROUTES.map((route, k) => data.routes[k][state.step]);
  for (const host of document.querySelectorAll("[data-routes]")) {
    if (!host.children.length) host.append(...ROUTES.map(route => element("span", {class: `route-${route.name}`})));
    ROUTES.forEach((route, k) => {
      host.children[k].style.flexGrow = shares[k];
      host.children[k].style.display = shares[k] > 0 ? "" : "none";
      if (host.dataset.routes === "full")
        host.children[k].textContent = shares[k] > 0.06 ? `${percent(shares[k])} %` : "";
    });
  }
  const words = ROUTES.map((route, k) => `${route.who} ${percent(shares[k])} %`);
  document
    .querySelector("[data-routes=full]")
    .setAttribute("aria-label", `Routes at θ = ${theta()}: ${words.join(", ")}`);
  document.querySelectorAll("#routes-legend b").forEach((node, k) => {
    node.textContent = `${percent(shares[k])} %`;
  });
}
legend(
  "routes-legend",
  ROUTES.map(r => ({
    icon: icon(r.shape, COLOUR[r.name]),
    words: [element("b", {"data-share": r.name}), element("span", {}, r.says)],
  })),
);
legend("wall-legend", [
  ...ROUTES.map(r => ({icon: icon(r.shape, COLOUR[r.name]), words: [r.who]})),
  {icon: icon("cross", COLOUR.wrong), words: ["wrong answer"]},
]);

// ---- the wall of images

const wall = byId("wall"),
  tiles = [];
const prediction = (i, t) => [images.guess[i], images.core[i], images.guess[i], ABSTAIN][perImage.route(i)[t]];
const answer = (i, t) => {
  const given = prediction(i, t);
  return given === ABSTAIN ? "none" : given === images.label[i] ? "right" : "wrong";
};
const shown = new Uint8Array(N).fill(255); // the route each tile shows now; for one image it also settles the answer

function place(node, i) {
  const {columns, rows} = images.sprite;
  const share = (k, count) => (count > 1 ? (100 * k) / (count - 1) : 0);
  node.style.backgroundPosition = `${share(i % columns, columns)}% ${share(Math.floor(i / columns), rows)}%`;
}

function describe(i) {
  const t = state.step,
    route = ROUTES[perImage.route(i)[t]],
    given = answer(i, t);
  const radius = route.name === "certify" ? `, radius ${downwards(perImage.radius(i)[t])}` : "";
  return `Image ${images.index[i]}, ${className(images.label[i])}: ${given === "none" ? "no answer" : `${className(prediction(i, t))}, ${given}`}, ${route.who}${radius}`;
}

function buildWall() {
  if (N <= 120) wall.style.setProperty("--tile", "3.25rem");
  for (let i = 0; i < N; i++) {
    const picture = element("span", {class: "thumb"});
    place(picture, i);
    const tile = element(
      "button",
      {type: "button", class: "tile", tabindex: -1, "data-image": i, "aria-pressed": false},
      picture,
    );
    tiles.push(tile);
  }
  wall.addEventListener("click", event => {
    const tile = event.target.closest(".tile");
    if (tile) choose(+tile.dataset.image, true);
  });
  wall.addEventListener("keydown", walk);
  // The radius in a label changes with every step: it is brought up to date when a tile is reached.
  for (const kind of ["focusin", "pointerover"])
    wall.addEventListener(kind, event => {
      const tile = event.target.closest(".tile");
      if (tile) {
        tile.title = describe(+tile.dataset.image);
        tile.setAttribute("aria-label", tile.title);
      }
    });
}

function orderWall(kind) {
  const key = {entropy: i => images.median[i], class: i => images.label[i] + i / N, index: i => images.index[i]}[kind];
  const order = tiles.map((_, i) => i).sort((a, b) => key(a) - key(b));
  wall.replaceChildren(...order.map(i => tiles[i]));
}

function walk(event) {
  const here = document.activeElement.closest(".tile"),
    all = wall.children;
  if (!here) return;
  const perRow = Array.prototype.findIndex.call(all, tile => tile.offsetTop > all[0].offsetTop);
  const jump = {
    ArrowRight: 1,
    ArrowLeft: -1,
    ArrowDown: perRow < 0 ? all.length : perRow,
    ArrowUp: -(perRow < 0 ? all.length : perRow),
  }[event.key];
  const place = Array.prototype.indexOf.call(all, here);
  const next =
    event.key === "Home" ? all[0] : event.key === "End" ? all[all.length - 1] : jump ? all[place + jump] : null;
  if (!next) return;
  event.preventDefault();
  reach(+next.dataset.image);
  next.focus();
}

function reach(i) {
  // one tile at a time is in the tab order
  wall.querySelector("[tabindex='0']")?.setAttribute("tabindex", -1);
  tiles[i].setAttribute("tabindex", 0);
}

function paintWall() {
  const t = state.step;
  for (let i = 0; i < N; i++) {
    const route = perImage.route(i)[t];
    if (shown[i] === route) continue;
    shown[i] = route;
    tiles[i].dataset.route = ROUTES[route].name;
    tiles[i].dataset.answer = answer(i, t);
    tiles[i].setAttribute("aria-label", describe(i));
  }
}

// ---- one image

function choose(i, open) {
  if (state.image !== null) tiles[state.image].setAttribute("aria-pressed", false);
  state.image = i;
  tiles[i].setAttribute("aria-pressed", true);
  reach(i);
  place(byId("portrait"), i);
  byId("portrait").setAttribute("aria-label", `Test image ${images.index[i]}, ${className(images.label[i])}`);
  byId("detail-title").replaceChildren(
    className(images.label[i]),
    element("small", {}, ` test image ${images.index[i]}`),
  );
  drawDetail();
  if (open) openDetail();
  detailCharts.forEach(chart => chart.render());
}

// Beside the wall the details are announced; on a small screen they lie over it, and the focus goes there and back.
const isSheet = () => getComputedStyle(byId("close")).display !== "none";

function openDetail() {
  byId("detail").classList.add("open");
  if (isSheet()) byId("detail").focus();
  else byId("announcement").textContent = describe(state.image);
}

function closeDetail() {
  const open = isSheet() && byId("detail").classList.contains("open");
  byId("detail").classList.remove("open");
  if (open) tiles[state.image].focus();
}

function verdict(id, i) {
  return element(
    "span",
    {class: id === images.label[i] ? "right" : "bad"},
    `${className(id)} ${id === ABSTAIN ? "" : id === images.label[i] ? "✓" : "✗"}`,
  );
}

const symbol = index =>
  element(
    "span",
    {},
    element("i", {}, "p"),
    element("sub", {}, index),
    index === "A" ? " of the class" : " of the selection",
  );
const bounded = (share, bound) => `${percent(share)}\u00a0%, ≥\u00a0${downwards(100 * bound, 2)}\u00a0%`;

function drawDetail() {
  const i = state.image,
    t = state.step,
    route = ROUTES[perImage.route(i)[t]],
    draws = images.draws[i];
  const selected = perImage.selected(i)[t],
    radius = perImage.radius(i)[t];
  byId("detail-answer").replaceChildren(
    "ACES: ",
    verdict(prediction(i, t), i),
    element("br"),
    element("small", {}, `${route.who}, radius `, element("span", {"data-own": "radius"}, downwards(radius))),
  );
  const votes = images.top[i].map(([id, count]) => `${className(id)}: ${percent(count / draws)}\u00a0%`).join(", ");
  const rows = [
    ["core", "core network", verdict(images.core[i], i)],
    ["guess", "certification network", verdict(images.guess[i], i)],
    ["alone", "its radius, alone", downwards(images.alone_radius[i])],
    ["votes", "its votes", votes],
    ["p_class", symbol("A"), bounded(images.p_class_share[i], perImage.pClass(i)[t])],
    ["p_select", symbol("S"), bounded(Math.max(selected, images.valid[i] - selected) / draws, perImage.pSelect(i)[t])],
    ["selected", "draws at or below θ", `${selected.toLocaleString("en")} of ${draws.toLocaleString("en")}`],
    ["natural", "ACES, no radius asked", verdict(perImage.natural(i)[t], i)],
  ];
  byId("detail-facts").replaceChildren(
    ...rows.flatMap(([own, name, value]) => [element("dt", {}, name), element("dd", {"data-own": own}, value)]),
  );
  byId("histogram-caption").textContent =
    `${data.score[0].toUpperCase() + data.score.slice(1)} of ${draws.toLocaleString("en")} noisy copies; dark: those with the guessed class, ${className(images.guess[i])}.`;
}

add(detailCharts, "histogram-chart", {
  height: 150,
  margin: {left: 34, bottom: 30, top: 22},
  x: {low: 0, high: 1, format: v => +v.toFixed(1), ticks: [0, 0.2, 0.4, 0.6, 0.8, 1]},
  y: {low: 0, high: 1, label: "share of draws, %", format: v => v},
  draw() {},
  move(chart) {
    if (state.image === null) return "";
    const all = perImage.histogram(state.image),
      joint = perImage.joint(state.image),
      most = Math.max(1, ...all);
    const width = chart.X(1 / images.bins) - chart.X(0),
      height = chart.Y(0) - chart.Y(0.94);
    all.forEach((count, k) => {
      const box = (value, fill) =>
        value &&
        chart.add("rect", {
          x: chart.X(k / images.bins) + 0.4,
          width: width - 0.8,
          y: chart.Y(0) - (height * value) / most,
          height: (height * value) / most,
          fill,
        });
      box(count, "#9cc7e0");
      box(joint[k], COLOUR.aces);
    });
    chart.text(chart.margin.left - 8, chart.Y(0.94) + 4, percent(most / images.draws[state.image], 0), {
      "text-anchor": "end",
    });
    chart.rule(thetas[state.step], `θ = ${theta()}`);
    return `Histogram of the ${data.score} of image ${images.index[state.image]}, median ${images.median[state.image].toFixed(2)}, threshold ${theta()}.`;
  },
  pick: (chart, x) => setStep(stepAt(chart, x)),
});
detailCharts[0].spec.y.ticks = [0];

add(detailCharts, "radius-chart", {
  height: 150,
  margin: {left: 34, bottom: 36, top: 20},
  x: {low: 0, high: 1, format: v => +v.toFixed(1), ticks: [0, 0.2, 0.4, 0.6, 0.8, 1]},
  y: {low: 0, high: Math.max(data.ceiling, 1e-6), label: "radius", format: v => +v.toFixed(2)},
  draw() {},
  move(chart) {
    if (state.image === null) return "";
    const radius = perImage.radius(state.image),
      route = perImage.route(state.image),
      half = 0.5 / (T - 1);
    const edge = t => chart.X(Math.min(1, Math.max(0, thetas[t] - half)));
    for (let from = 0, t = 1; t <= T; t++) {
      if (t < T && route[t] === route[from]) continue;
      chart.add("rect", {
        x: edge(from),
        width: (t < T ? edge(t) : chart.X(1)) - edge(from),
        y: chart.Y(0) + 1,
        height: 6,
        fill: COLOUR[ROUTES[route[from]].name],
      });
      from = t;
    }
    chart.line(thetas, radius, COLOUR.aces);
    chart.rule(thetas[state.step], "");
    chart.add("circle", {
      cx: chart.X(thetas[state.step]),
      cy: chart.Y(radius[state.step]),
      r: 5,
      fill: "#fff",
      stroke: COLOUR.aces,
      "stroke-width": 2.5,
    });
    return `Certified radius of image ${images.index[state.image]} over θ: ${downwards(radius[state.step])} at θ = ${theta()}, at most ${downwards(Math.max(...radius))}.`;
  },
  pick: (chart, x) => setStep(stepAt(chart, x)),
});
