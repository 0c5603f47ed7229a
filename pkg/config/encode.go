package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

// YAML returns the configuration with every key, in a form that Parse reads.
func (c *Config) YAML() ([]byte, error) {
	return yaml.Marshal(encode(reflect.ValueOf(c).Elem()))
}

// encode is the inverse of decoder. Structs keep the order of their fields; maps are sorted by
// their keys.
func encode(v reflect.Value) *yaml.Node {
	if text, ok := scalar(v); ok {
		return scalarNode(text)
	}
	switch v.Kind() {
	case reflect.Struct:
		node := &yaml.Node{Kind: yaml.MappingNode}
		appendFields(node, v)
		return node
	case reflect.Slice:
		node := &yaml.Node{Kind: yaml.SequenceNode, Style: flowIf(v.Len() == 0 || v.Index(0).Kind() != reflect.Struct)}
		for i := range v.Len() {
			node.Content = append(node.Content, encode(v.Index(i)))
		}
		return node
	case reflect.Map:
		node := &yaml.Node{Kind: yaml.MappingNode, Style: flowIf(v.Len() == 0)}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			node.Content = append(node.Content, scalarNode(key.String()), encode(v.MapIndex(key)))
		}
		return node
	}
	panic("config: no writer for " + v.Type().String())
}

func appendFields(node *yaml.Node, v reflect.Value) {
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			appendFields(node, v.Field(i))
		case name != "-" && !unset(v.Field(i)):
			node.Content = append(node.Content, scalarNode(name), encode(v.Field(i)))
		}
	}
}

// unset reports whether a value has no representation as text, so that its key is omitted.
func unset(v reflect.Value) bool {
	switch v.Interface().(type) {
	case Band, PoolSize, Cache, Bandwidth, annotation.OnInvalid, workload.Class:
		return v.IsZero()
	}
	return v.Kind() == reflect.String && v.IsZero() && reflect.PointerTo(v.Type()).Implements(unmarshaler)
}

var unmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

func flowIf(flow bool) yaml.Style {
	if flow {
		return yaml.FlowStyle
	}
	return 0
}

// scalarNode returns a node that is read back as this text. The decoder reads scalars
// literally; the quotes are for other YAML readers.
func scalarNode(text string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(text)
	if _, err := strconv.Atoi(text); err == nil || text == "true" || text == "false" {
		node.Tag, node.Style = "", 0
	}
	return node
}

// scalar returns the text of a scalar value; ok is false for any other value.
func scalar(v reflect.Value) (text string, ok bool) {
	switch value := v.Interface().(type) {
	case annotation.Given:
		return value.Text, true
	case time.Duration:
		return duration(value), true
	case control.Mode:
		return cmp.Or(string(value), "default"), true
	case control.CPUs:
		return workload.MilliCPU(value).String(), true
	case control.Bytes:
		return bytesText(int64(value)), true
	case encoding.TextMarshaler:
		text, err := value.MarshalText()
		return string(text), err == nil
	}
	switch v.Kind() {
	case reflect.String:
		return v.String(), true
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), true
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), true
	}
	return "", false
}

// duration formats 5m, where the package time has 5m0s.
func duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// bytesText formats 2147483648 as 2Gi.
func bytesText(bytes int64) string {
	for _, unit := range []struct {
		suffix string
		shift  uint
	}{{"Ti", 40}, {"Gi", 30}, {"Mi", 20}, {"Ki", 10}} {
		if bytes != 0 && bytes%(1<<unit.shift) == 0 {
			return strconv.FormatInt(bytes>>unit.shift, 10) + unit.suffix
		}
	}
	return strconv.FormatInt(bytes, 10)
}

// MarshalText formats a band: "30-50%".
func (b Band) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d-%d%%", b.Low, b.High), nil }

// MarshalText formats a size so that UnmarshalText reads it.
func (s PoolSize) MarshalText() ([]byte, error) {
	switch {
	case s.Percent > 0:
		return fmt.Appendf(nil, "%d%%", s.Percent), nil
	case s.Count > 0:
		return strconv.AppendInt(nil, int64(s.Count), 10), nil
	case s.Set.Size() == 1:
		return fmt.Appendf(nil, "%s-%s", s.Set, s.Set), nil
	}
	return s.Set.MarshalText()
}

// MarshalText formats a cache share: "0-30%, 1=0x7f".
func (c Cache) MarshalText() ([]byte, error) { return byIDText(c.All, c.ByID), nil }

// MarshalText formats a bandwidth: "85%, 1=5000MBps".
func (b Bandwidth) MarshalText() ([]byte, error) { return byIDText(b.All, b.ByID), nil }

func byIDText[T interface {
	comparable
	fmt.Stringer
}](all T, some map[int]T) []byte {
	var none T
	var parts []string
	if all != none || len(some) == 0 {
		parts = append(parts, all.String())
	}
	for _, id := range slices.Sorted(maps.Keys(some)) {
		parts = append(parts, strconv.Itoa(id)+"="+some[id].String())
	}
	return []byte(strings.Join(parts, ", "))
}

// Value is a key with its value as text.
type Value struct{ Key, Text string }

// Values returns all keys of a configuration that have a value, such as "pools.list[0].name",
// in the order of docs/config.md. A mapping for pods is one value per key.
func Values(c *Config) []Value {
	var all []Value
	flatten("", encode(reflect.ValueOf(c).Elem()), &all)
	return all
}

func flatten(path string, node *yaml.Node, into *[]Value) {
	switch {
	case node.Kind == yaml.MappingNode && len(node.Content) > 0:
		for i := 0; i+1 < len(node.Content); i += 2 {
			flatten(join(path, node.Content[i].Value), node.Content[i+1], into)
		}
	case node.Kind == yaml.SequenceNode && len(node.Content) > 0 && node.Content[0].Kind != yaml.ScalarNode:
		for i, item := range node.Content {
			flatten(path+"["+strconv.Itoa(i)+"]", item, into)
		}
	case node.Kind == yaml.SequenceNode:
		texts := make([]string, len(node.Content))
		for i, item := range node.Content {
			texts[i] = item.Value
		}
		*into = append(*into, Value{path, strings.Join(texts, ", ")})
	case node.Kind == yaml.ScalarNode:
		*into = append(*into, Value{path, node.Value})
	}
}

// Change is a key whose value differs; "" means that the key has no value.
type Change struct {
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Compare returns the differences between the values of two configurations, in the order of the
// new one. A removed key keeps its old place.
func Compare(from, to []Value) []Change {
	old := make(map[string]string, len(from))
	for _, v := range from {
		old[v.Key] = v.Text
	}
	here := make(map[string]bool, len(to))
	for _, v := range to {
		here[v.Key] = true
	}
	var changes []Change
	gone := func(upTo string) {
		for len(from) > 0 && from[0].Key != upTo {
			if v := from[0]; !here[v.Key] && v.Text != "" {
				changes = append(changes, Change{Key: v.Key, From: v.Text})
			}
			from = from[1:]
		}
	}
	for _, v := range to {
		was, there := old[v.Key]
		if there {
			gone(v.Key)
		}
		if was != v.Text {
			changes = append(changes, Change{Key: v.Key, From: was, To: v.Text})
		}
	}
	gone("")
	for i := range changes {
		if c := &changes[i]; c.Key == "web.token" {
			c.From, c.To = hidden(c.From), hidden(c.To)
		}
	}
	return changes
}

// hidden returns a placeholder for a secret.
func hidden(text string) string {
	if text == "" {
		return ""
	}
	return "(not shown)"
}
