package config

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/text/suggest"
)

// decoder reads YAML into a Config by the struct's yaml tags. Unlike yaml.v3's strict mode, it
// continues after a mistake, knows the line and the path of each value, and reads scalars
// literally: "mode: on" and "reserved: 010" are not YAML 1.1's booleans and octal numbers.
type decoder struct {
	lines map[string]int // the line of each key in the file, by its path: "pools.list[0].cpus"
	errs  Errors
}

// fail records a mistake in the value at path. If the file doesn't have that value, the mistake
// gets the line of the nearest key that contains it.
func (d *decoder) fail(path, format string, args ...any) {
	line := d.lines[path]
	for at := path; line == 0 && at != ""; line = d.lines[at] {
		at = at[:max(0, strings.LastIndexAny(at, ".["))]
	}
	d.errs = append(d.errs, Error{Line: line, Key: path, Text: fmt.Sprintf(format, args...)})
}

var durationType = reflect.TypeFor[time.Duration]()

func (d *decoder) value(node *yaml.Node, into reflect.Value, path string) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	d.lines[path] = node.Line
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](into.Addr()); ok {
		if d.is(node, yaml.ScalarNode, "one value", path) {
			if err := u.UnmarshalText([]byte(node.Value)); err != nil {
				d.fail(path, "%s: %v", quote(node.Value), err)
			}
		}
		return
	}
	switch {
	case into.Type() == durationType:
		d.duration(node, into, path)
	case into.Kind() == reflect.Struct:
		d.mapping(node, fields(into), path)
	case into.Kind() == reflect.Slice:
		if !d.is(node, yaml.SequenceNode, "a list", path) {
			return
		}
		list := reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content))
		for i, item := range node.Content {
			d.value(item, list.Index(i), path+"["+strconv.Itoa(i)+"]")
		}
		into.Set(list)
	case into.Type() == setType:
		into.Set(reflect.ValueOf(d.given(node, path)))
	case into.Kind() == reflect.Map && into.Type().Elem().Kind() == reflect.Struct:
		d.structMap(node, into, path)
	case into.Kind() == reflect.Map:
		d.textMap(node, into, path)
	case into.Kind() == reflect.Int:
		if d.is(node, yaml.ScalarNode, "a whole number", path) {
			n, err := strconv.Atoi(node.Value)
			if err != nil {
				d.fail(path, "%s: must be a whole number", quote(node.Value))
			}
			into.SetInt(int64(n))
		}
	case into.Kind() == reflect.Bool:
		if d.is(node, yaml.ScalarNode, "true or false", path) {
			if node.Value != "true" && node.Value != "false" {
				d.fail(path, "%s: must be true or false", quote(node.Value))
				return
			}
			into.SetBool(node.Value == "true")
		}
	case into.Kind() == reflect.String:
		if d.is(node, yaml.ScalarNode, "a text", path) {
			into.SetString(node.Value)
		}
	default:
		panic("config: no reader for " + into.Type().String())
	}
}

func (d *decoder) is(node *yaml.Node, kind yaml.Kind, what, path string) bool {
	if node.Kind != kind {
		d.fail(path, "must be %s", what)
	}
	return node.Kind == kind
}

func (d *decoder) duration(node *yaml.Node, into reflect.Value, path string) {
	if !d.is(node, yaml.ScalarNode, "a duration like 500ms, 2s or 5m", path) {
		return
	}
	v, err := time.ParseDuration(node.Value)
	if err != nil {
		d.fail(path, "%s: must be a duration like 500ms, 2s or 5m", quote(node.Value))
		return
	}
	into.SetInt(int64(v))
}

func (d *decoder) textMap(node *yaml.Node, into reflect.Value, path string) {
	if !d.is(node, yaml.MappingNode, "keys with values", path) {
		return
	}
	texts := map[string]string{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := join(path, key.Value)
		d.lines[at] = key.Line
		if _, twice := texts[key.Value]; twice {
			d.fail(at, "is there twice")
		}
		if d.is(value, yaml.ScalarNode, "one value", at) {
			texts[key.Value] = value.Value
		}
	}
	into.Set(reflect.ValueOf(texts))
}

// structMap reads a mapping from names to structs.
func (d *decoder) structMap(node *yaml.Node, into reflect.Value, path string) {
	if !d.is(node, yaml.MappingNode, "keys with values", path) {
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := join(path, key.Value)
		element := reflect.New(into.Type().Elem()).Elem()
		d.value(value, element, at)
		d.lines[at] = key.Line
		name := reflect.ValueOf(key.Value)
		if into.MapIndex(name).IsValid() {
			d.fail(at, "is there twice")
		}
		into.SetMapIndex(name, element)
	}
}

func (d *decoder) mapping(node *yaml.Node, fields map[string]reflect.Value, path string) {
	if !d.is(node, yaml.MappingNode, "keys with values", path) {
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := join(path, key.Value)
		field, known := fields[key.Value]
		switch {
		case !known:
			d.lines[at] = key.Line
			d.fail(at, "is not a key that Sluice knows%s", hint(key.Value, fields))
		case seen[key.Value]:
			d.errs = append(d.errs, Error{Line: key.Line, Key: at, Text: "is there twice"})
		default:
			d.value(value, field, at)
			d.lines[at] = key.Line
		}
		seen[key.Value] = true
	}
}

// hint names the key that the user probably meant, or lists all keys.
func hint(key string, fields map[string]reflect.Value) string {
	return known(key, slices.Sorted(maps.Keys(fields)))
}

// known does for sorted names what hint does for keys.
func known(name string, names []string) string {
	if near := suggest.To(name, names); near != "" {
		return "; did you mean " + near + "?"
	}
	if len(names) == 0 {
		return ", which has none"
	}
	return "; there are " + strings.Join(names, ", ")
}

// fields returns a struct's fields by the keys of their yaml tags, including the fields of
// inline structs.
func fields(v reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			maps.Copy(out, fields(v.Field(i)))
		case name != "-":
			out[name] = v.Field(i)
		}
	}
	return out
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func quote(value string) string {
	const most = 80
	if len(value) <= most {
		return strconv.Quote(value)
	}
	return strconv.Quote(strings.ToValidUTF8(value[:most], "")) + "…"
}
