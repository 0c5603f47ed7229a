package statusapi

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// fields computes the JSON merge patch (RFC 7396) between two statuses, and applies it. In a
// patch, containers are an object by their IDs, so that a patch can change or remove one of
// them; all other lists are replaced as a whole. Zero values of all fields may be omitted, or
// null.
//
// fields compares values, not text, so that unchanged values are never encoded.
type fields struct {
	of map[reflect.Type][]field
}

// field describes one field of a struct.
type field struct {
	name     string // its name in JSON
	key      string // the quoted name with a colon: "\"name\":"
	index    int
	embedded bool // its fields belong to the struct itself
	optional bool // omitted from JSON if it is zero or empty
	tree     bool // a struct or a pointer to one, which is compared field by field
}

func newFields() *fields { return &fields{of: map[reflect.Type][]field{}} }

func (f *fields) list(t reflect.Type) []field {
	if known, ok := f.of[t]; ok {
		return known
	}
	var list []field
	for i := range t.NumField() {
		at := t.Field(i)
		name, options, _ := strings.Cut(at.Tag.Get("json"), ",")
		if name == "-" || !at.IsExported() {
			continue
		}
		list = append(list, field{
			name: name, key: `"` + name + `":`, index: i, embedded: at.Anonymous && name == "", tree: isTree(at.Type),
			optional: strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero"),
		})
	}
	f.of[t] = list
	return list
}

func isTree(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	p := reflect.PointerTo(t)
	return t.Kind() == reflect.Struct && !p.Implements(reflect.TypeFor[json.Marshaler]()) && !p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// patch returns the patch that changes old into now.
func (f *fields) patch(old, now *status.Status) ([]byte, error) {
	var into bytes.Buffer
	into.WriteByte('{')
	was, is := *old, *now
	was.Containers, is.Containers = nil, nil
	if err := f.changes(&into, reflect.ValueOf(&was).Elem(), reflect.ValueOf(&is).Elem()); err != nil {
		return nil, err
	}
	into.WriteString(`"containers":{`)
	begin := into.Len()
	if err := f.containers(&into, old.Containers, now.Containers); err != nil {
		return nil, err
	}
	if into.Len() == begin {
		into.Truncate(begin - len(`"containers":{`))
	} else {
		end(&into)
		into.WriteByte(',')
	}
	end(&into)
	into.WriteByte('\n')
	return into.Bytes(), nil
}

func (f *fields) containers(into *bytes.Buffer, old, now []status.Container) error {
	before := make(map[string]*status.Container, len(old))
	for i := range old {
		before[old[i].ID] = &old[i]
	}
	for i := range now {
		c := &now[i]
		begin := into.Len()
		key(into, c.ID)
		was := before[c.ID]
		if was == nil {
			if err := whole(into, reflect.ValueOf(c)); err != nil {
				return err
			}
			into.WriteByte(',')
			continue
		}
		delete(before, c.ID)
		into.WriteByte('{')
		from := into.Len()
		if err := f.changes(into, reflect.ValueOf(was).Elem(), reflect.ValueOf(c).Elem()); err != nil {
			return err
		}
		if into.Len() == from {
			into.Truncate(begin)
			continue
		}
		end(into)
		into.WriteByte(',')
	}
	for id := range before {
		key(into, id)
		into.WriteString("null,")
	}
	return nil
}

// changes writes the members of a struct that differ, each followed by a comma.
func (f *fields) changes(into *bytes.Buffer, was, is reflect.Value) error {
	for _, at := range f.list(is.Type()) {
		was, is := was.Field(at.index), is.Field(at.index)
		if at.embedded {
			if err := f.changes(into, was, is); err != nil {
				return err
			}
			continue
		}
		begin := into.Len()
		into.WriteString(at.key)
		differs, err := f.change(into, at, was, is)
		if err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
		if !differs {
			into.Truncate(begin)
			continue
		}
		into.WriteByte(',')
	}
	return nil
}

func (f *fields) change(into *bytes.Buffer, at field, was, is reflect.Value) (differs bool, err error) {
	if at.tree && is.Kind() == reflect.Pointer {
		switch {
		case was.Pointer() == is.Pointer():
			return false, nil
		case is.IsNil():
			into.WriteString("null")
			return true, nil
		case was.IsNil():
			return true, whole(into, is)
		}
		was, is = was.Elem(), is.Elem()
	}
	if at.tree {
		into.WriteByte('{')
		begin := into.Len()
		err := f.changes(into, was, is)
		differs = into.Len() > begin
		end(into)
		return differs, err
	}
	if equal(was, is) {
		return false, nil
	}
	if at.optional && is.IsZero() {
		into.WriteString("null")
		return true, nil
	}
	return true, whole(into, is)
}

// equal compares the fields of two statuses; it compares sets and times, which are most of
// their bytes, without reflection.
func equal(a, b reflect.Value) bool {
	switch x := a.Addr().Interface().(type) {
	case *cpuset.Set:
		return *x == *b.Addr().Interface().(*cpuset.Set)
	case *time.Time:
		return x.Equal(*b.Addr().Interface().(*time.Time))
	}
	switch {
	case a.Kind() != reflect.Slice && a.Comparable():
		return a.Equal(b)
	case a.Kind() == reflect.Slice && a.Len() == b.Len() && (a.Len() == 0 || a.Pointer() == b.Pointer()):
		return a.IsNil() == b.IsNil()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

func whole(into *bytes.Buffer, v reflect.Value) error {
	data, err := json.Marshal(v.Interface())
	into.Write(data)
	return err
}

func key(into *bytes.Buffer, name string) {
	data, _ := json.Marshal(name) // encoding a string never fails
	into.Write(data)
	into.WriteByte(':')
}

// end closes an object whose members end in commas.
func end(into *bytes.Buffer) {
	if last := into.Len() - 1; into.Bytes()[last] == ',' {
		into.Truncate(last)
	}
	into.WriteByte('}')
}

// merge returns a status with a patch applied. It doesn't change the old status, which shares
// its unchanged parts with the new one.
func (f *fields) merge(old *status.Status, patch []byte) (*status.Status, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(patch, &members); err != nil {
		return nil, err
	}
	now := *old
	if containers, ok := members["containers"]; ok {
		delete(members, "containers")
		if err := f.mergeContainers(&now, containers); err != nil {
			return nil, err
		}
	}
	return &now, f.set(reflect.ValueOf(&now).Elem(), members)
}

func (f *fields) mergeContainers(s *status.Status, patch []byte) error {
	var changes map[string]json.RawMessage
	if err := json.Unmarshal(patch, &changes); err != nil {
		return fmt.Errorf("containers: %w", err)
	}
	all := make([]status.Container, 0, len(s.Containers)+len(changes))
	for i := range s.Containers {
		c := s.Containers[i]
		if change, ok := changes[c.ID]; ok {
			delete(changes, c.ID)
			if isNull(change) {
				continue
			}
			if err := f.mergeInto(reflect.ValueOf(&c).Elem(), change); err != nil {
				return fmt.Errorf("container %s: %w", c.ID, err)
			}
		}
		all = append(all, c)
	}
	for id, change := range changes {
		if isNull(change) {
			continue
		}
		c := status.Container{ID: id}
		if err := f.mergeInto(reflect.ValueOf(&c).Elem(), change); err != nil {
			return fmt.Errorf("container %s: %w", id, err)
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, status.Older)
	s.Containers = all
	return nil
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }

func (f *fields) mergeInto(v reflect.Value, patch []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(patch, &members); err != nil {
		return err
	}
	return f.set(v, members)
}

// set sets a struct's members. It ignores unknown members, which come from a newer plugin.
func (f *fields) set(v reflect.Value, members map[string]json.RawMessage) error {
	for _, at := range f.list(v.Type()) {
		to := v.Field(at.index)
		if at.embedded {
			if err := f.set(to, members); err != nil {
				return err
			}
			continue
		}
		value, ok := members[at.name]
		if !ok {
			continue
		}
		var err error
		switch {
		case isNull(value):
			to.SetZero()
		case at.tree && to.Kind() == reflect.Pointer:
			own := reflect.New(to.Type().Elem())
			if !to.IsNil() {
				own.Elem().Set(to.Elem())
			}
			to.Set(own)
			err = f.mergeInto(own.Elem(), value)
		case at.tree:
			err = f.mergeInto(to, value)
		default:
			to.SetZero() // the new list must not share memory with the old
			err = json.Unmarshal(value, to.Addr().Interface())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
	}
	return nil
}
