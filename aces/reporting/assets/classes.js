// Class by class: a table of accuracies, and who answers what.

const MOST = 20; // classes that a matrix can show; of more the most frequent confusions are listed
const known = [...new Set(all.label)].filter(id => id !== ABSTAIN).sort((a, b) => a - b);
const RIGHT = 4,
  CERTIFIED = 8; // bits of a code beside the route (aces/reporting/payload.py)
let tally = null;

// label -> what became of its images at this threshold; over all images, also those without a tile.
function count() {
  const found = new Map(known.map(id => [id, {images: 0, right: 0, certified: 0, core: 0, abstain: 0, given: new Map()}])),
    codes = perTheta.code(state.step);
  codes.forEach((code, i) => {
    const row = found.get(all.label[i]);
    if (!row) return;
    const route = code & 3,
      given = answered({guess: all.guess[i], core: all.core[i]}, route);
    row.images++;
    row.right += !!(code & RIGHT);
    row.certified += !!(code & CERTIFIED);
    row.core += route === 1;
    row.abstain += route === 3;
    if (!row.given.has(given)) row.given.set(given, [0, 0, 0, 0]);
    row.given.get(given)[route]++;
  });
  return found;
}

const sum = values => values.reduce((a, b) => a + b, 0);

function drawClasses() {
  tally = count();
  const share = (row, name) => element("td", {}, percent(row[name] / row.images));
  byId("class-rows").replaceChildren(
    ...known.map(id => {
      const row = tally.get(id);
      return element(
        "tr",
        {"data-class": id},
        element("th", {scope: "row"}, className(id)),
        element("td", {}, whole(row.images)),
        ...["right", "certified", "core", "abstain"].map(name => share(row, name)),
      );
    }),
  );
  if (known.length <= MOST) drawMatrix();
  else drawConfusions();
}

// What a cell says: how many images of one class get an answer, and from whom.
function words(id, given, counts) {
  const from = ROUTES.map((route, k) => (counts[k] ? `${route.who} ${whole(counts[k])}` : null)).filter(Boolean);
  const what = given === ABSTAIN ? "no answer" : given === id ? `right: ${className(given)}` : `answered ${className(given)}`;
  return [`${className(id)}, ${what}`, `${whole(sum(counts))} of ${whole(tally.get(id).images)} images`, ...from];
}

function drawMatrix() {
  const columns = [...known, ABSTAIN];
  const head = columns.map(id => element("th", {scope: "col"}, element("span", {}, className(id))));
  const rows = known.map(id => {
    const row = tally.get(id);
    return element(
      "tr",
      {},
      element("th", {scope: "row"}, className(id)),
      ...columns.map(given => {
        const counts = row.given.get(given) ?? [0, 0, 0, 0],
          total = sum(counts),
          kind = given === id ? "right" : given === ABSTAIN ? "abstain" : "wrong";
        const cell = element(
          "td",
          {class: total ? kind : "zero", tabindex: -1, "data-row": id, "data-given": given},
          total ? whole(total) : "·",
        );
        if (total) cell.style.setProperty("--share", (0.2 + (0.8 * total) / row.images).toFixed(2));
        return cell;
      }),
    );
  });
  byId("confusion").replaceChildren(
    element("thead", {}, element("tr", {}, element("td"), ...head)),
    element("tbody", {}, ...rows),
  );
  byId("confusion").querySelector("tbody td").tabIndex = 0;
}

// Of many classes: which is most often taken for which.
function drawConfusions() {
  const pairs = known
    .flatMap(id => [...tally.get(id).given].map(([given, counts]) => ({id, given, counts, total: sum(counts)})))
    .filter(({id, given}) => given !== id && given !== ABSTAIN)
    .sort((a, b) => b.total - a.total || a.id - b.id)
    .slice(0, MOST);
  const cell = text => element("td", {}, text);
  byId("confusion").replaceChildren(
    element(
      "thead",
      {},
      element("tr", {}, ...["class", "answered", "images", "by"].map(name => element("th", {scope: "col"}, name))),
    ),
    element(
      "tbody",
      {},
      ...pairs.map(({id, given, counts, total}) =>
        element(
          "tr",
          {},
          element("th", {scope: "row"}, className(id)),
          cell(className(given)),
          cell(whole(total)),
          cell(words(id, given, counts).slice(2).join(", ")),
        ),
      ),
    ),
  );
}

// The cells have tooltips by pointer and by the arrow keys; a click or Enter shows the class on the wall.
function buildClasses() {
  const table = byId("confusion");
  const tell = (cell, spoken) => {
    const id = +cell.dataset.row,
      given = +cell.dataset.given,
      where = () => {
        const {left, top} = cell.getBoundingClientRect();
        return [left, top];
      };
    const said = words(id, given, tally.get(id).given.get(given) ?? [0, 0, 0, 0]);
    cell.setAttribute("aria-label", said.join(", "));
    tip.show(said, where, spoken);
  };
  table.addEventListener("pointerover", event => {
    const cell = event.target.closest("[data-given]");
    if (cell) tell(cell, false);
    else tip.hide();
  });
  table.addEventListener("pointerleave", () => tip.hide());
  table.addEventListener("focusin", event => tell(event.target, false));
  table.addEventListener("focusout", () => tip.hide());
  const show = id => {
    state.class = new Set([String(id)]);
    refilter();
    byId("images").scrollIntoView();
  };
  table.addEventListener("click", event => {
    const cell = event.target.closest("[data-given]");
    if (cell) show(cell.dataset.row);
  });
  table.addEventListener("keydown", event => {
    const cell = event.target.closest("[data-given]"),
      move = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]}[event.key];
    if (cell && event.key === "Enter") return show(cell.dataset.row);
    if (!cell || !move) return;
    const next = table.tBodies[0].rows[cell.parentNode.sectionRowIndex + move[0]]?.cells[cell.cellIndex + move[1]];
    if (!next?.dataset.given) return;
    event.preventDefault();
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}
