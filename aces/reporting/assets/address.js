// The state of the page in its address, so that a view can be sent; and the download of what is shown.

// While the slider moves the address waits: browsers allow only some changes of it a second.
let waiting = null;

function writeAddressSoon() {
  clearTimeout(waiting);
  waiting = setTimeout(writeAddress, 150);
}

function writeAddress() {
  clearTimeout(waiting);
  const entries = {};
  if (state.step !== data.start) entries.theta = theta();
  if (state.image !== null && state.image !== data.first) entries.image = images.index[state.image];
  for (const kind of Object.keys(traits)) if (state[kind].size) entries[kind] = [...state[kind]].join(",");
  if (state.order !== "score") entries.order = state.order;
  const text = new URLSearchParams(entries).toString().replaceAll("%2C", ",");
  try {
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  } catch {
    // Inside another page (MLflow shows the report so) the address is not ours to write.
  }
}

// Take the state from the address; what it does not name, or names wrongly, keeps its default.
function readAddress() {
  const found = new URLSearchParams(location.hash.slice(1)),
    list = kind => new Set((found.get(kind) ?? "").split(",").filter(Boolean));
  const value = parseFloat(found.get("theta"));
  state.step = Number.isFinite(value) ? stepOf(value) : data.start;
  const allowed = {route: ROUTES.map(r => r.name), answer: Object.keys(ANSWERS), class: labels.map(String)};
  for (const kind of Object.keys(traits))
    state[kind] = new Set([...list(kind)].filter(value => allowed[kind].includes(value)));
  state.order = ORDERS[found.get("order")] ? found.get("order") : "score";
  const image = images.index.indexOf(Number(found.get("image") ?? NaN));
  return image < 0 ? data.first : image;
}

// One row for each image that the filters let through, at the threshold of the page.
function asCsv() {
  const t = state.step,
    quoted = text => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const head = "index,label,theta,route,prediction,radius,natural_prediction,core,certify,certify_radius";
  const rows = [...wall.children]
    .filter(tile => !tile.hidden)
    .map(({dataset: {image: i}}) => [
      images.index[i],
      className(images.label[i]),
      thetas[t],
      ROUTES[perImage.route(i)[t]].name,
      className(prediction(i, t)),
      perImage.radius(i)[t],
      className(perImage.natural(i)[t]),
      className(images.core[i]),
      className(images.guess[i]),
      images.alone_radius[i],
    ]);
  return [head, ...rows.map(row => row.map(value => quoted(String(value))).join(","))].join("\n") + "\n";
}

function download() {
  const address = URL.createObjectURL(new Blob([asCsv()], {type: "text/csv"}));
  const link = element("a", {href: address, download: `outcomes-theta-${theta()}.csv`});
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
