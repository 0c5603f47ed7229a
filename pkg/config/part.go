package config

import (
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Part returns the part of the configuration that has these keys and what is below them, such as
// "control.batch.thresholdPercent" or "pools.list", in a form that Parse reads. A key without a
// value is left out; a key of a list's item stands for the list, since lists replace each other
// as a whole.
func (c *Config) Part(keys ...string) ([]byte, error) {
	whole := encode(reflect.ValueOf(c).Elem())
	paths := make([]string, len(keys))
	for i, key := range keys {
		paths[i], _, _ = strings.Cut(key, "[")
	}
	return yaml.Marshal(pick(whole, "", paths))
}

// pick returns a mapping with what is at the paths alone.
func pick(node *yaml.Node, at string, paths []string) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		path := join(at, name.Value)
		above := slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, path+".") })
		switch {
		case slices.Contains(paths, path):
			out.Content = append(out.Content, name, value)
		case above && value.Kind == yaml.MappingNode:
			if below := pick(value, path, paths); len(below.Content) > 0 {
				out.Content = append(out.Content, name, below)
			}
		}
	}
	return out
}
