// merge is a document with a merge patch (RFC 7396) in it. The one before stays as it
// is, and shares with the new one what has not changed.
export function merge(old, patch) {
  if (!isObject(patch)) return patch;
  let now = isObject(old) ? { ...old } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete now[name];
    else if (name === '__proto__') now = { ...now, [name]: merge(now[name], value) }; // to assign it would set the prototype
    else now[name] = merge(now[name], value);
  }
  return now;
}

const isObject = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
