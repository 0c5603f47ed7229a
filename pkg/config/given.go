package config

import (
	"fmt"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

// given reads keys with values for pods. If a value is a mapping, it may be a YAML mapping
// instead of a quoted text.
func (d *decoder) given(node *yaml.Node, path string) annotation.Set {
	set := annotation.Set{}
	if !d.is(node, yaml.MappingNode, "keys with values", path) {
		return set
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := join(path, key.Value)
		d.lines[at] = key.Line
		if seen[key.Value] {
			d.fail(at, "is there twice")
		}
		seen[key.Value] = true
		text, err := oneLine(value)
		if err != nil {
			d.fail(at, "must be one value, or keys with values")
			continue
		}
		g, err := annotation.Give(key.Value, text)
		if err != nil {
			d.fail(at, "%s: %v", quote(text), err)
			continue
		}
		set[key.Value] = g
	}
	return set
}

// oneLine returns a value's text: that of a scalar, or a mapping in YAML's flow style.
func oneLine(node *yaml.Node) (string, error) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch node.Kind {
	case yaml.ScalarNode:
		return node.Value, nil
	case yaml.MappingNode:
		flow := *node
		flow.Style, flow.Anchor = yaml.FlowStyle, ""
		flow.HeadComment, flow.LineComment, flow.FootComment = "", "", ""
		text, err := yaml.Marshal(&flow)
		return strings.TrimSpace(string(text)), err
	}
	return "", fmt.Errorf("%s is no value", node.ShortTag())
}

// checkGiven reports keys that are not allowed at this place or on this node.
func (d *decoder) checkGiven(c *Config, at string, set annotation.Set, level annotation.Level, class workload.Class) {
	for key, g := range set {
		if err := c.CheckGiven(level, class, g); err != nil {
			d.fail(at+"."+key, "%s: %v", quote(g.Text), err)
		}
	}
}

func (d *decoder) checkClasses(c *Config) {
	for _, name := range workload.Classes() {
		if class, err := workload.ParseClass(name); err == nil {
			d.checkGiven(c, "classes."+name, c.Classes.Of(class), annotation.ForClass, class)
		}
	}
}

var setType = reflect.TypeFor[annotation.Set]()
