// Sets the chosen theme before anything is drawn; without a choice the system's holds.
(function () {
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch { /* Storage may be forbidden: then nothing is remembered. */ }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
