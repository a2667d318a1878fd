// Light, dark, or as the system has it; remembered by the browser.

const KEY = "penstock-theme";
const ORDER = ["auto", "light", "dark"];

export const theme = {
  get: () => localStorage.getItem(KEY) ?? "auto",
  next() {
    const following = ORDER[(ORDER.indexOf(theme.get()) + 1) % ORDER.length];
    localStorage.setItem(KEY, following);
    theme.apply();
    return following;
  },
  apply() {
    document.documentElement.dataset.theme = theme.get();
    dispatchEvent(new Event("themechange"));
  },
};
