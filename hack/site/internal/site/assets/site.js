(function () {
  const page = document.documentElement;
  const root = page.dataset.root;
  const byID = (id) => document.getElementById(id);

  byID("theme-button").addEventListener("click", () => {
    page.dataset.theme = page.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", page.dataset.theme); } catch { /* It holds for this page. */ }
  });

  const menuButton = byID("menu-button");
  menuButton.addEventListener("click", () => {
    const open = byID("menu").classList.toggle("open");
    menuButton.setAttribute("aria-expanded", open);
  });
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest" });

  // A picture may be opened in its own size.
  for (const picture of document.querySelectorAll("article img")) {
    const link = document.createElement("a");
    link.href = picture.src;
    picture.replaceWith(link);
    link.append(picture);
  }

  for (const block of document.querySelectorAll("article pre")) {
    if (!navigator.clipboard) break;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(block.querySelector("code").innerText).then(() => { button.textContent = "Copied"; });
    });
    const frame = document.createElement("div");
    frame.className = "code";
    block.replaceWith(frame);
    frame.append(block, button);
  }

  // The index is read when it is first needed, as a script, so that it also works from a file.
  const input = byID("search");
  const results = byID("results");
  let index = null;
  let loading = null;

  function load(name) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = root + "assets/" + name;
      script.onload = resolve;
      script.onerror = reject;
      document.head.append(script);
    });
  }

  function prepare() {
    loading ??= Promise.all([load("minisearch.js"), load("search-index.js")]).then(() => {
      index = new MiniSearch({
        fields: ["heading", "page", "body"],
        storeFields: ["heading", "page", "address", "body"],
        searchOptions: { boost: { heading: 4, page: 2 }, prefix: true, fuzzy: 0.15, combineWith: "AND" },
      });
      index.addAll(window.searchIndex);
    });
    return loading;
  }

  function excerpt(body, terms) {
    const lower = body.toLowerCase();
    const places = terms.map((term) => lower.indexOf(term)).filter((place) => place >= 0);
    const at = places.length > 0 ? Math.max(0, Math.min(...places) - 40) : 0;
    return (at > 0 ? "… " : "") + body.slice(at, at + 140);
  }

  function show(found) {
    results.replaceChildren(...found.slice(0, 12).map((hit) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = root + hit.address;
      const title = document.createElement("strong");
      title.textContent = hit.heading === hit.page ? hit.page : hit.page + " › " + hit.heading;
      const text = document.createElement("span");
      text.textContent = excerpt(hit.body, hit.terms);
      link.append(title, text);
      item.append(link);
      item.setAttribute("role", "option");
      return item;
    }));
    if (found.length === 0) {
      const item = document.createElement("li");
      item.className = "nothing";
      item.textContent = "Nothing found";
      results.append(item);
    }
    open(true);
  }

  function open(isOpen) {
    results.hidden = !isOpen;
    input.setAttribute("aria-expanded", isOpen);
  }

  function search() {
    const query = input.value.trim();
    if (query.length < 2) { open(false); return; }
    prepare().then(() => { if (query === input.value.trim()) show(index.search(query)); });
  }

  input.addEventListener("focus", prepare);
  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    const first = results.querySelector("a");
    if (event.key === "Escape") { open(false); input.blur(); }
    if (event.key === "Enter" && first && !results.hidden) first.click();
    if (event.key === "ArrowDown" && first) { event.preventDefault(); first.focus(); }
  });
  results.addEventListener("keydown", (event) => {
    const item = document.activeElement.closest("li");
    const next = { ArrowDown: item?.nextElementSibling, ArrowUp: item?.previousElementSibling }[event.key];
    if (next) { event.preventDefault(); next.querySelector("a")?.focus(); }
    if (event.key === "Escape") { open(false); input.focus(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    input.focus();
  });
  document.addEventListener("click", (event) => { if (!event.target.closest(".search")) open(false); });
})();
