package status

import (
	"slices"
	"strings"
)

// PartOf returns the name of the part of the fleet's policy from which a key's value comes; "" if
// it comes from the node's own configuration. A part that sets a list, or an empty mapping, sets
// all keys below it.
func (c *Config) PartOf(key string) string {
	for i := range c.Parts {
		if slices.ContainsFunc(c.Parts[i].Keys, func(set string) bool { return below(key, set) }) {
			return c.Parts[i].Name
		}
	}
	return ""
}

// Concerns returns the keys of the part at, below and above a key.
func (p *ConfigPart) Concerns(key string) (keys []string) {
	for _, set := range p.Keys {
		if below(key, set) || below(set, key) {
			keys = append(keys, set)
		}
	}
	return keys
}

// below reports whether a key is another one or is below it.
func below(key, other string) bool { return key == other || strings.HasPrefix(key, other+".") }
