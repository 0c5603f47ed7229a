// Package overlay lays the parts of the fleet's policy over a node's own configuration. It is pure.
package overlay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/text/safeyaml"
)

// Allowable lists the keys of sluice.yaml that a node may allow parts to set. All others decide
// what Sluice may do as root, or who may do what: sockets, folders, authorizations, the mode.
func Allowable() []string { return []string{"control", "pools"} }

// reserved lists the keys below the allowable ones that only the node's own file sets: how pods are
// evicted and which never are, what happens to cgroups and files outside of pods, and what takes a
// restart.
func reserved() []string {
	return []string{
		"control.eviction.by", "control.eviction.socket", "control.eviction.never", "control.hostApplications", "control.fastInterval", "control.interval",
	}
}

// CheckKeys returns an error for keys that no node may allow parts to set.
func CheckKeys(keys []string) error {
	for _, key := range keys {
		if !slices.ContainsFunc(Allowable(), func(most string) bool { return below(key, most) }) {
			return fmt.Errorf("%.80q: a part may set %s and keys below them, as control.windows", key, strings.Join(Allowable(), ", "))
		}
	}
	return nil
}

// below reports whether a key is another one or is below it.
func below(key, other string) bool {
	return key == other || strings.HasPrefix(key, other+".")
}

// read reads a part and lists the keys that it sets.
func read(text string, allowed []string) (*yaml.Node, []string, error) {
	documents, err := safeyaml.Documents([]byte(text))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("not YAML: %w", err)
	case len(documents) != 1 || len(documents[0].Content) != 1 || documents[0].Content[0].Kind != yaml.MappingNode || len(documents[0].Content[0].Content) == 0:
		return nil, nil, errors.New("a part must be one YAML document with keys of sluice.yaml")
	}
	var keys []string
	if err := list(documents[0].Content[0], "", &keys); err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		if err := check(key, allowed); err != nil {
			return nil, nil, err
		}
	}
	return documents[0].Content[0], keys, nil
}

// list lists the keys of a mapping that have a list or a single value.
func list(node *yaml.Node, path string, into *[]string) error {
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		switch {
		case key.Kind != yaml.ScalarNode || key.Value == "" || strings.Contains(key.Value, "."):
			return fmt.Errorf("line %d: %.80q is no key of sluice.yaml", key.Line, key.Value)
		case seen[key.Value]:
			return fmt.Errorf("line %d: %s: is there twice", key.Line, at)
		case value.Kind == yaml.MappingNode && len(value.Content) > 0:
			if err := list(value, at, into); err != nil {
				return err
			}
		default:
			if err := plain(value); err != nil {
				return fmt.Errorf("line %d: %s: %w", value.Line, at, err)
			}
			*into = append(*into, at)
		}
		seen[key.Value] = true
	}
	return nil
}

// plain refuses aliases, which can make a small text a large configuration.
func plain(node *yaml.Node) error {
	if node.Kind == yaml.AliasNode {
		return errors.New("a part may have no alias (*name): write the value out")
	}
	for _, c := range node.Content {
		if err := plain(c); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if a part may not set a key on this node. A mapping without keys sets all
// below it.
func check(key string, allowed []string) error {
	sets := func(other string) bool { return below(key, other) }
	for _, own := range reserved() {
		if sets(own) || below(own, key) {
			return fmt.Errorf("%s: only the node's own sluice.yaml sets %s; remove it from the part", key, own)
		}
	}
	switch {
	case slices.ContainsFunc(allowed, sets):
		return nil
	case slices.ContainsFunc(Allowable(), sets):
		return fmt.Errorf("%s: this node does not allow parts to set it; add it to 'sluice run --fleet-keys', or remove it from the part", key)
	}
	return fmt.Errorf("%s: a part may set %s alone; set it in the node's own sluice.yaml", key, strings.Join(Allowable(), " and "))
}

// overlay returns a copy of a mapping with the values of another one over its own.
func overlay(under, over *yaml.Node) *yaml.Node {
	if under != nil && under.Kind == yaml.AliasNode {
		under = under.Alias
	}
	if under == nil || under.Kind != yaml.MappingNode || over.Kind != yaml.MappingNode || len(over.Content) == 0 {
		return over
	}
	merged := *under
	merged.Content = slices.Clone(under.Content)
	for i := 0; i+1 < len(over.Content); i += 2 {
		at := 0
		for at+1 < len(merged.Content) && merged.Content[at].Value != over.Content[i].Value {
			at += 2
		}
		if at+1 >= len(merged.Content) {
			merged.Content = append(merged.Content, over.Content[i], over.Content[i+1])
			continue
		}
		merged.Content[at+1] = overlay(merged.Content[at+1], over.Content[i+1])
	}
	return &merged
}
