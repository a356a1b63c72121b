// Who answered: the routes' shares, the filters, the wall of images, and the lists of telling ones.

// ---- the routes

function drawRoutes() {
  const shares = ROUTES.map(() => 0);
  perTheta.code(state.step).forEach(code => (shares[code & 3] += 1 / data.count));
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

// ---- the filters: within one kind any of the chosen, of several kinds all

const ANSWERS = {right: "right", wrong: "wrong", none: "no answer"};
const FEW = 12; // classes that have a chip each; more of them share a list
const labels = [...new Set(images.label)].filter(id => id !== ABSTAIN).sort((a, b) => a - b);
const traits = {
  route: (i, t) => ROUTES[perImage.route(i)[t]].name,
  answer,
  class: i => String(images.label[i]),
};
const matches = (i, t) =>
  Object.entries(traits).every(([kind, of]) => !state[kind].size || state[kind].has(of(i, t)));

function chip(kind, value, ...words) {
  const count = element("b"),
    button = element("button", {type: "button", class: "chip", "data-filter": kind, "data-value": value}, ...words, count);
  button.addEventListener("click", () => {
    if (!state[kind].delete(value)) state[kind].add(value);
    refilter();
  });
  return button;
}

function buildFilters() {
  byId("filter-route").append(...ROUTES.map(r => chip("route", r.name, icon(r.shape, COLOUR[r.name]), r.who)));
  byId("filter-answer").append(...Object.entries(ANSWERS).map(([value, words]) => chip("answer", value, words)));
  if (labels.length <= FEW) byId("filter-class").append(...labels.map(id => chip("class", String(id), className(id))));
  else {
    const list = element("select", {id: "class-list", "aria-label": "Class"}, element("option", {value: ""}, "any"));
    list.append(...labels.map(id => element("option", {value: id}, className(id))));
    list.addEventListener("change", () => {
      state.class = new Set(list.value ? [list.value] : []);
      refilter();
    });
    byId("filter-class").append(list);
  }
  byId("filter-none").addEventListener("click", () => {
    for (const kind of Object.keys(traits)) state[kind].clear();
    refilter();
  });
}

function refilter() {
  paintFilters();
  paintWall();
  writeAddress();
}

// A chip counts what it would show beside the other kinds' choices.
function paintFilters() {
  const t = state.step;
  for (const button of document.querySelectorAll("[data-filter]")) {
    const {filter: kind, value} = button.dataset;
    let count = 0;
    for (let i = 0; i < N; i++)
      if (
        traits[kind](i, t) === value &&
        Object.entries(traits).every(([other, of]) => other === kind || !state[other].size || state[other].has(of(i, t)))
      )
        count++;
    button.lastChild.textContent = whole(count);
    button.setAttribute("aria-pressed", state[kind].has(value));
  }
  if (byId("class-list")) byId("class-list").value = [...state.class][0] ?? "";
  byId("filter-none").hidden = !Object.keys(traits).some(kind => state[kind].size);
}

// ---- the wall of images

const wall = byId("wall"),
  tiles = [];
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

function tileOf(i) {
  const picture = element("span", {class: "thumb"});
  place(picture, i);
  return element("button", {type: "button", class: "tile", "data-image": i, "aria-pressed": false}, picture);
}

function buildWall() {
  if (N <= 120) wall.style.setProperty("--tile", "3.25rem");
  for (let i = 0; i < N; i++) {
    tiles.push(tileOf(i));
    tiles[i].tabIndex = -1;
  }
  wall.addEventListener("click", event => {
    const tile = event.target.closest(".tile");
    if (tile) choose(+tile.dataset.image, true);
  });
  wall.addEventListener("keydown", walk);
  explainTiles(wall);
}

// The tooltip of a tile, by pointer and by focus; its radius changes with theta, so it is written when it is shown.
function explainTiles(host) {
  for (const kind of ["focusin", "pointerover"])
    host.addEventListener(kind, event => {
      const tile = event.target.closest(".tile");
      if (!tile) return tip.hide();
      const words = describe(+tile.dataset.image);
      tile.setAttribute("aria-label", words);
      tip.show(words.split(": "), () => {
        const {left, top} = tile.getBoundingClientRect();
        return [left, top];
      });
    });
  for (const kind of ["focusout", "pointerleave"]) host.addEventListener(kind, () => tip.hide());
}

const ORDERS = {
  score: i => images.median[i],
  radius: i => -perImage.radius(i)[state.step],
  class: i => images.label[i] + i / N,
  index: i => images.index[i],
};

function orderWall() {
  const key = tiles.map((_, i) => ORDERS[state.order](i));
  const order = tiles.map((_, i) => i).sort((a, b) => key[a] - key[b]);
  wall.replaceChildren(...order.map(i => tiles[i]));
}

function walk(event) {
  const here = document.activeElement.closest(".tile"),
    visible = [...wall.children].filter(tile => !tile.hidden);
  if (!here || !visible.length) return;
  const perRow = visible.findIndex(tile => tile.offsetTop > visible[0].offsetTop);
  const jump = {
    ArrowRight: 1,
    ArrowLeft: -1,
    ArrowDown: perRow < 0 ? visible.length : perRow,
    ArrowUp: -(perRow < 0 ? visible.length : perRow),
  }[event.key];
  const next =
    event.key === "Home" ? visible[0] : event.key === "End" ? visible.at(-1) : jump ? visible[visible.indexOf(here) + jump] : null;
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
  let visible = 0;
  for (let i = 0; i < N; i++) {
    const route = perImage.route(i)[t],
      seen = matches(i, t);
    if (tiles[i].hidden === seen) tiles[i].hidden = !seen;
    visible += seen;
    if (shown[i] === route) continue;
    shown[i] = route;
    paintTile(tiles[i], i);
    tiles[i].setAttribute("aria-label", describe(i));
  }
  byId("wall-count").textContent =
    visible === N ? `${whole(N)} images` : `${whole(visible)} of ${whole(N)} images match`;
  const reachable = wall.querySelector("[tabindex='0']");
  if (!reachable || reachable.hidden) {
    const first = [...wall.children].find(tile => !tile.hidden);
    if (first) reach(+first.dataset.image);
  }
}

function paintTile(tile, i) {
  tile.dataset.route = ROUTES[perImage.route(i)[state.step]].name;
  tile.dataset.answer = answer(i, state.step);
}

// ---- lists of telling images at this threshold

const LISTED = 12;
const lost = (i, t) => (images.alone_right[i] ? images.alone_radius[i] - perImage.radius(i)[t] : 0);
const LISTS = {
  wrong: {
    rank: (i, t) =>
      perImage.route(i)[t] === 0 && answer(i, t) === "wrong" ? perImage.radius(i)[t] : -1,
    says: (i, t) => `${className(prediction(i, t))}, r = ${downwards(perImage.radius(i)[t])}`,
  },
  lost: {
    rank: (i, t) => (lost(i, t) > 0 ? lost(i, t) : -1),
    says: (i, t) => `${downwards(images.alone_radius[i])} → ${downwards(perImage.radius(i)[t])}`,
  },
  abstained: {
    rank: (i, t) => (perImage.route(i)[t] === 3 ? 1 + images.alone_radius[i] : -1),
    says: i => `core: ${className(images.core[i])}, certify: ${className(images.guess[i])}`,
  },
};

function buildLists() {
  for (const name of Object.keys(LISTS)) {
    const host = byId(`list-${name}`);
    host.addEventListener("click", event => {
      const tile = event.target.closest(".tile");
      if (tile) choose(+tile.dataset.image, true);
    });
    explainTiles(host);
  }
}

function drawLists() {
  const t = state.step;
  for (const [name, {rank, says}] of Object.entries(LISTS)) {
    const ranked = Array.from({length: N}, (_, i) => [rank(i, t), i])
      .filter(([value]) => value >= 0)
      .sort((a, b) => b[0] - a[0]);
    byId(`count-${name}`).textContent = whole(ranked.length);
    byId(`list-${name}`).replaceChildren(
      ...ranked.slice(0, LISTED).map(([, i]) => {
        const tile = tileOf(i);
        paintTile(tile, i);
        tile.setAttribute("aria-label", describe(i));
        return element("li", {}, tile, element("span", {}, element("b", {}, className(images.label[i])), says(i, t)));
      }),
      ...(ranked.length ? [] : [element("li", {class: "none"}, "none at this threshold")]),
    );
  }
}
