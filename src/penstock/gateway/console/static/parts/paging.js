// Pages of lists whose place is in the address: the cursors that led here are its part `after`, with commas between.
//
//     const pages = pagesOf(query, change);
//     api.get("/v1/streams", { match: globOf(query.q), cursor: pages.cursor });
//     html`<${Pager} page=${data} cursors=${pages.cursors} onChange=${pages.onChange} />`

export function pagesOf(query, change, name = "after") {
  const cursors = query[name] ? query[name].split(",") : [];
  return {
    cursors,
    cursor: cursors.at(-1),
    onChange: (following) => change({ [name]: following.join(",") || null }),
  };
}

/** The glob that finds what somebody typed anywhere in a name; a star means that it is a glob already. */
export function globOf(text) {
  if (!text) return undefined;
  return text.includes("*") ? text : `*${text.replace(/[[?]/g, "[$&]")}*`;
}
