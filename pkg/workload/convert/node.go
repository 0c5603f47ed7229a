package convert

import (
	"slices"

	"gopkg.in/yaml.v3"
)

// index returns the position of a key in a mapping; -1 if it is missing, or the node is no mapping.
func index(mapping *yaml.Node, key string) int {
	if !isMapping(mapping) {
		return -1
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i
		}
	}
	return -1
}

func isMapping(node *yaml.Node) bool { return node != nil && node.Kind == yaml.MappingNode }

// at returns the value at a path of keys; nil if it is missing.
func at(node *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		i := index(node, key)
		if i < 0 {
			return nil
		}
		node = node.Content[i+1]
	}
	return node
}

// text returns the scalar at a path; "" if it is missing or null.
func text(node *yaml.Node, path ...string) string {
	value := at(node, path...)
	if value == nil || value.Kind != yaml.ScalarNode || value.ShortTag() == "!!null" {
		return ""
	}
	return value.Value
}

// set gives a key of a mapping a value, and adds the key if it is missing. In a mapping that quotes its keys,
// as JSON does, what is added is quoted too.
func set(mapping *yaml.Node, key, value string) {
	if i := index(mapping, key); i >= 0 {
		v := mapping.Content[i+1]
		v.Kind, v.Tag, v.Value, v.Content = yaml.ScalarNode, "", value, nil
		if v.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
			v.Style = 0
		}
		return
	}
	add(mapping, key, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
}

// add appends a key to a mapping.
func add(mapping *yaml.Node, key string, value *yaml.Node) {
	name := &yaml.Node{Kind: yaml.ScalarNode, Value: key, Style: keyStyle(mapping)}
	if value.Kind == yaml.ScalarNode {
		value.Style = name.Style
	}
	mapping.Content = append(mapping.Content, name, value)
}

// keyStyle returns the style of a mapping's keys.
func keyStyle(mapping *yaml.Node) yaml.Style {
	if len(mapping.Content) == 0 {
		return mapping.Style & yaml.DoubleQuotedStyle
	}
	return mapping.Content[0].Style & yaml.DoubleQuotedStyle
}

// child returns the mapping at a key. If it is missing or null, child adds it, metadata as the first key.
func child(mapping *yaml.Node, key string) *yaml.Node {
	i := index(mapping, key)
	if i < 0 {
		i = len(mapping.Content)
		add(mapping, key, &yaml.Node{Kind: yaml.MappingNode, Style: mapping.Style & yaml.FlowStyle})
		if key == "metadata" {
			mapping.Content = append(slices.Clone(mapping.Content[i:]), mapping.Content[:i]...)
			i = 0
		}
	}
	value := mapping.Content[i+1]
	if value.Kind != yaml.MappingNode {
		*value = yaml.Node{Kind: yaml.MappingNode, Style: mapping.Style & yaml.FlowStyle}
	}
	if len(value.Content) == 0 {
		value.Style |= keyStyle(mapping) // its keys are to be quoted as those around it
	}
	return value
}

// remove deletes a key, and reports whether it was there.
func remove(mapping *yaml.Node, key string) bool {
	i := index(mapping, key)
	if i < 0 {
		return false
	}
	mapping.Content = slices.Delete(mapping.Content, i, i+2)
	if len(mapping.Content) == 0 {
		mapping.Style |= yaml.FlowStyle // in the other style, a comment at the mapping makes the YAML library write invalid YAML
	}
	return true
}

// hasAlias reports whether a node or one below it is an alias, has an anchor for one, or is merged.
func hasAlias(node *yaml.Node) bool {
	return node.Kind == yaml.AliasNode || node.Tag == "!!merge" || node.Anchor != "" || slices.ContainsFunc(node.Content, hasAlias)
}
