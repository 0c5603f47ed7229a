package overlay

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

// Node is what a node has and allows.
type Node struct {
	Own     *yaml.Node // the node's own configuration, which must be valid
	Allowed []string   // keys that parts may set
	// Accepts returns the error for which the node refuses a configuration as it is now, and the
	// keys whose values would not be in force before a restart.
	Accepts func(*config.Config) (inert []string, err error)
}

// Merged is a configuration with parts over it.
type Merged struct {
	Config *config.Config
	Held   []policy.Part       // whose texts are in it, the most important last
	Parts  []status.ConfigPart // what became of each part, the most important last
}

// Merge lays the wanted parts over the node's own configuration, one after the other. Mappings are
// merged; lists and single values are replaced. If the node refuses the result, the parts change one
// by one from those that it holds, which are in force: a part whose new text is refused is left
// out, and one that can't be left out either keeps its earlier text. The result says why.
func (n *Node) Merge(held, wanted []policy.Part) (*Merged, error) {
	base, err := config.ParseNode(n.Own)
	if err != nil {
		return nil, err
	}
	m := merge{Node: n, base: base, order: union(held, wanted), problems: map[string]string{}}
	now := m.layers(wanted)
	if m.refuses(now) != nil {
		goal, problems := now, maps.Clone(m.problems)
		if now = m.layers(held); m.refuses(now) != nil {
			now = nil
		}
		m.problems = problems // those of earlier texts are of no interest
		for _, p := range wanted {
			now = m.step(now, p.Name, goal)
		}
		for _, p := range held {
			if !named(wanted, p.Name) {
				now = m.step(now, p.Name, nil)
			}
		}
	}
	out := &Merged{Config: base}
	if len(now) > 0 {
		if out.Config, err = m.config(now); err != nil {
			return nil, err
		}
	}
	for _, l := range now {
		out.Held = append(out.Held, l.Part)
	}
	out.Parts = m.results(now, wanted)
	return out, nil
}

// merge is a merge under way.
type merge struct {
	*Node
	base     *config.Config
	order    []string          // names of all parts, the most important last
	problems map[string]string // by the part's name
}

// layer is a part that can be read.
type layer struct {
	policy.Part
	document *yaml.Node
	keys     []string
}

// layers returns the parts that can be read, in order, and notes the problems of the others.
func (m *merge) layers(parts []policy.Part) []layer {
	var all []layer
	for _, p := range parts {
		if p.Problem != "" {
			m.problems[p.Name] = p.Problem
			continue
		}
		document, keys, err := read(p.Text, m.Allowed)
		if err != nil {
			m.problems[p.Name] = oneLine(err)
			continue
		}
		all = append(all, layer{p, document, keys})
	}
	m.sort(all)
	return all
}

func (m *merge) sort(layers []layer) {
	slices.SortStableFunc(layers, func(a, b layer) int { return slices.Index(m.order, a.Name) - slices.Index(m.order, b.Name) })
}

// step changes one part to what the goal has, or leaves it out, if the node accepts that.
func (m *merge) step(now []layer, name string, goal []layer) []layer {
	is := func(l layer) bool { return l.Name == name }
	without := slices.DeleteFunc(slices.Clone(now), is)
	if i := slices.IndexFunc(goal, is); i >= 0 {
		next := append(slices.Clone(without), goal[i])
		m.sort(next)
		err := m.refuses(next)
		if err == nil {
			return next
		}
		m.problems[name] = oneLine(err)
	}
	if len(without) == len(now) {
		return now
	}
	if err := m.refuses(without); err != nil {
		m.problems[name] = strings.TrimPrefix(m.problems[name]+"; ", "; ") + "its earlier text stays in force, because without it: " + oneLine(err)
		return now
	}
	return without
}

// refuses returns why the node can't have the layers.
func (m *merge) refuses(layers []layer) error {
	c, err := m.config(layers)
	if err != nil {
		return err
	}
	inert, err := m.Accepts(c)
	if err != nil {
		return err
	}
	for _, l := range layers {
		for _, key := range l.keys {
			if slices.ContainsFunc(inert, func(other string) bool { return below(key, other) || below(other, key) }) {
				return fmt.Errorf("%s: this value takes a restart of Sluice; set it in the node's own sluice.yaml", key)
			}
		}
	}
	return nil
}

func (m *merge) config(layers []layer) (*config.Config, error) {
	document := m.Own
	for _, l := range layers {
		document = overlay(document, l.document)
	}
	c, err := config.ParseNode(document)
	if err != nil {
		return nil, err
	}
	return c, sameSets(m.base, c)
}

// sameSets returns an error if a pool has other settings than the node's own configuration gives
// it. They are privileges: an OOM score or a weight. A pool that has any is open only to pods with an
// authorization.
func sameSets(own, c *config.Config) error {
	sets := func(c *config.Config, name string) config.Pool {
		i := slices.IndexFunc(c.Pools.List, func(p config.Pool) bool { return p.Name == name })
		if i < 0 {
			return config.Pool{}
		}
		return c.Pools.List[i]
	}
	for _, name := range append(own.Pools.Names(), c.Pools.Names()...) {
		if !maps.EqualFunc(sets(own, name).Set, sets(c, name).Set, func(a, b annotation.Given) bool { return a.Text == b.Text }) {
			return fmt.Errorf("pools.list: the pool %q must have the 'set' of the node's own sluice.yaml: repeat that in the part, or change it there", name)
		}
	}
	return nil
}

// results says what became of each part. Each value comes from one part alone.
func (m *merge) results(now []layer, wanted []policy.Part) []status.ConfigPart {
	all := []status.ConfigPart{}
	for _, name := range m.order {
		i := slices.IndexFunc(now, func(l layer) bool { return l.Name == name })
		if i < 0 && !named(wanted, name) {
			continue
		}
		r := status.ConfigPart{Name: name, Problem: m.problems[name]}
		if i >= 0 {
			r.Keys = slices.DeleteFunc(slices.Clone(now[i].keys), func(key string) bool {
				return slices.ContainsFunc(now[i+1:], func(l layer) bool {
					return slices.ContainsFunc(l.keys, func(later string) bool { return below(key, later) || below(later, key) })
				})
			})
		}
		all = append(all, r)
	}
	return all
}

// union lists the names of all parts in the order of the wanted ones. One that is only held comes
// after the one that it comes after now.
func union(held, wanted []policy.Part) []string {
	var names []string
	for _, p := range wanted {
		names = append(names, p.Name)
	}
	at := 0
	for _, p := range held {
		if i := slices.Index(names, p.Name); i >= 0 {
			at = i + 1
			continue
		}
		names = slices.Insert(names, at, p.Name)
		at++
	}
	return names
}

func named(parts []policy.Part, name string) bool {
	return slices.ContainsFunc(parts, func(p policy.Part) bool { return p.Name == name })
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
