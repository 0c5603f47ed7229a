// Package journal keeps, on disk, what the kernel's settings were before Sluice
// changed them, so that they can be put back: when a setting is let go, after a
// crash, and by `sluice restore`.
//
// The file is a journal of JSON lines: an entry for a value that is kept, a
// shorter one for a value that is let go. It is not synced: what it speaks of
// ends with the boot, whose id is its first line, so it need only outlive the
// process.
package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Entry is one value that a cgroup had.
type Entry struct {
	Object knobs.Object
	Knob   knobs.Knob
	Value  knobs.Value
	Wrote  knobs.Value // what Sluice wrote last; nil where it only may have written
}

// Book is the journal with what it says. It is for one goroutine.
type Book struct {
	name    string // of the file; "" keeps in memory alone
	boot    string
	file    *os.File
	values  map[string]map[knobs.Knob]Entry // by path
	others  map[string]json.RawMessage
	unknown map[string]map[string]line // settings of another version, by path and name, for when it returns
	changes map[knobs.Level]uint64     // of values
	pending bytes.Buffer               // lines that are not in the file yet
	lines   int                        // in the file
	bytes   int                        // and how long they are together
	least   int                        // what they were when the file was made
}

// line is a line of the file.
type line struct {
	Boot  string          `json:"boot,omitempty"`
	Path  string          `json:"path,omitempty"`
	Name  string          `json:"name,omitempty"`
	Level knobs.Level     `json:"level,omitempty"`
	Knob  string          `json:"knob,omitempty"`
	Value *string         `json:"value,omitempty"`
	Wrote *string         `json:"wrote,omitempty"` // neither this nor a value: let go
	Other string          `json:"other,omitempty"`
	State json.RawMessage `json:"state,omitempty"`
}

// Open reads the journal of this boot; "" is a book without a file. A line that
// can't be read costs its own value: the error names the first, and the book can
// be used all the same.
func Open(name, boot string) (*Book, error) {
	b, err := Read(name, boot)
	if name != "" {
		err = errors.Join(err, b.rewrite())
	}
	return b, err
}

// Read is Open for a look: the file is left alone until the first Flush.
func Read(name, boot string) (*Book, error) {
	b := &Book{name: name, boot: boot, values: map[string]map[knobs.Knob]Entry{}, others: map[string]json.RawMessage{}, unknown: map[string]map[string]line{}, changes: map[knobs.Level]uint64{}}
	if name == "" {
		return b, nil
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	return b, errors.Join(err, b.replay(data))
}

// TakeOver adds what the journal of another file keeps of this boot and b doesn't, and
// removes that file once it is written. One that isn't there has nothing.
func (b *Book) TakeOver(name string) error {
	old, err := Read(name, b.boot)
	b.Add(old)
	if failed := b.Flush(); failed != nil {
		return errors.Join(err, failed)
	}
	if removed := os.Remove(name); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

// Add takes in what another book keeps and b doesn't: of two originals the one in b
// counts.
func (b *Book) Add(other *Book) {
	for _, e := range other.All() {
		if _, ok := b.values[e.Object.Path][e.Knob]; !ok {
			b.add(e)
			b.write(e.line())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(other.others)) {
		if _, ok := b.others[name]; !ok {
			b.put(name, other.others[name])
			b.write(line{Other: name, State: other.others[name]})
		}
	}
	for _, l := range other.allUnknown() {
		if _, ok := b.unknown[l.Path][l.Knob]; !ok {
			b.putUnknown(l)
			b.write(l)
		}
	}
}

func (b *Book) replay(data []byte) error {
	var first error
	number := 0
	for text := range bytes.Lines(data) {
		number++
		err := b.read(text, number == 1)
		if errors.Is(err, errOtherBoot) {
			return nil
		}
		if err != nil && first == nil {
			first = fmt.Errorf("%s line %d: %w; the value that it kept can't be given back", b.name, number, err)
		}
	}
	return first
}

// errOtherBoot says that the journal is of an earlier boot, whose settings are gone.
var errOtherBoot = errors.New("written in an earlier boot")

func (b *Book) read(text []byte, header bool) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	switch {
	case header && l.Boot != b.boot:
		return errOtherBoot
	case header, l.Boot != "":
		return nil
	case l.Other != "":
		b.put(l.Other, l.State)
		return nil
	case l.Path == "":
		return errors.New("neither a cgroup nor another state is named")
	case l.Knob == "":
		b.removeAll(l.Path)
		return nil
	}
	knob, ok := knobs.KnobByName(l.Knob)
	if !ok {
		b.putUnknown(l)
		return fmt.Errorf("%.60q is not a setting that this Sluice knows: the journal keeps it for the version that does", l.Knob)
	}
	if l.Value == nil && l.Wrote == nil {
		b.remove(l.Path, knob)
		return nil
	}
	e := b.values[l.Path][knob]
	if l.Value != nil {
		e = Entry{Object: knobs.Object{Path: l.Path, Name: l.Name, Level: l.Level}, Knob: knob}
	}
	for text, into := range map[*string]*knobs.Value{l.Value: &e.Value, l.Wrote: &e.Wrote} {
		if text == nil {
			continue
		}
		value, err := knobs.ParseValue(knob, *text)
		if err != nil {
			return err
		}
		*into = value
	}
	if e.Value == nil {
		return errors.New("it was written, and what it was before is not said")
	}
	b.add(e)
	return nil
}

func (b *Book) add(e Entry) {
	entries := b.values[e.Object.Path]
	if entries == nil {
		entries = map[knobs.Knob]Entry{}
		b.values[e.Object.Path] = entries
	}
	entries[e.Knob] = e
	b.changes[e.Object.Level]++
}

func (b *Book) remove(path string, knob knobs.Knob) {
	b.changes[b.values[path][knob].Object.Level]++
	delete(b.values[path], knob)
	if len(b.values[path]) == 0 {
		delete(b.values, path)
	}
}

// putUnknown takes in a line of a setting that another version knows.
func (b *Book) putUnknown(l line) {
	switch was := b.unknown[l.Path][l.Knob]; {
	case l.Value == nil && l.Wrote == nil:
		delete(b.unknown[l.Path], l.Knob)
		return
	case l.Value == nil && was.Value == nil:
		return // what it was before is not said
	case l.Value == nil:
		was.Wrote = l.Wrote
		l = was
	}
	if b.unknown[l.Path] == nil {
		b.unknown[l.Path] = map[string]line{}
	}
	b.unknown[l.Path][l.Knob] = l
}

// allUnknown lists the settings of another version, by path and name.
func (b *Book) allUnknown() []line {
	var all []line
	for _, path := range slices.Sorted(maps.Keys(b.unknown)) {
		for _, name := range slices.Sorted(maps.Keys(b.unknown[path])) {
			all = append(all, b.unknown[path][name])
		}
	}
	return all
}

func (b *Book) removeAll(path string) {
	delete(b.unknown, path)
	for _, e := range b.values[path] {
		b.changes[e.Object.Level]++
	}
	delete(b.values, path)
}

func (b *Book) put(name string, state json.RawMessage) {
	if len(state) == 0 || string(state) == "null" {
		delete(b.others, name)
		return
	}
	b.others[name] = slices.Clone(state)
}

// Keep notes a value, in place of one that was kept before. It is on disk after
// the next Flush.
func (b *Book) Keep(o knobs.Object, knob knobs.Knob, value knobs.Value) {
	e := Entry{Object: o, Knob: knob, Value: value}
	if now, ok := b.values[o.Path][knob]; ok && now.Value == value {
		return
	}
	b.add(e)
	b.write(e.line())
}

// Wrote notes what is about to be written over a value that is kept.
func (b *Book) Wrote(path string, knob knobs.Knob, value knobs.Value) {
	e, ok := b.values[path][knob]
	if !ok || e.Wrote == value {
		return
	}
	e.Wrote = value
	b.add(e)
	text := knobs.FormatValue(value)
	b.write(line{Path: path, Knob: knob.String(), Wrote: &text})
}

func (e Entry) line() line {
	text := knobs.FormatValue(e.Value)
	l := line{Path: e.Object.Path, Name: e.Object.Name, Level: e.Object.Level, Knob: e.Knob.String(), Value: &text}
	if e.Wrote != nil {
		wrote := knobs.FormatValue(e.Wrote)
		l.Wrote = &wrote
	}
	return l
}

// Kept is the value that a cgroup had.
func (b *Book) Kept(path string, knob knobs.Knob) (knobs.Value, bool) {
	e, ok := b.values[path][knob]
	return e.Value, ok
}

// Entry is what is kept of one setting.
func (b *Book) Entry(path string, knob knobs.Knob) (Entry, bool) {
	e, ok := b.values[path][knob]
	return e, ok
}

// Version changes with each change of what is kept of cgroups at that level.
func (b *Book) Version(level knobs.Level) uint64 { return b.changes[level] }

// Drop lets a value go that has been given back.
func (b *Book) Drop(path string, knob knobs.Knob) {
	if _, ok := b.values[path][knob]; ok {
		b.remove(path, knob)
		b.write(line{Path: path, Knob: knob.String()})
	}
}

// Forget lets all values of a cgroup go, which is gone.
func (b *Book) Forget(path string) {
	if len(b.values[path]) > 0 || len(b.unknown[path]) > 0 {
		b.removeAll(path)
		b.write(line{Path: path})
	}
}

// All lists what is kept, by path and knob.
func (b *Book) All() []Entry {
	var all []Entry
	for _, path := range slices.Sorted(maps.Keys(b.values)) {
		knobs := slices.SortedFunc(maps.Values(b.values[path]), func(x, y Entry) int { return cmp.Compare(x.Knob, y.Knob) })
		all = append(all, knobs...)
	}
	return all
}

// KeepState notes originals of another kind under a name; nil lets them go.
func (b *Book) KeepState(name string, state any) error {
	raw, err := json.Marshal(state)
	if err != nil {
		return err
	}
	b.put(name, raw)
	b.write(line{Other: name, State: raw})
	return nil
}

// State reads what KeepState noted; ok is false where there is nothing.
func (b *Book) State(name string, into any) (ok bool, err error) {
	raw, ok := b.others[name]
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(raw, into)
}

func (b *Book) write(l line) {
	if b.name == "" {
		return
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // a line is made of texts and numbers
	}
	b.pending.Write(append(text, '\n'))
}

// Flush brings what was noted to the file, in one write. After an error nothing
// that was noted since may be changed in the kernel.
func (b *Book) Flush() error {
	if b.pending.Len() == 0 {
		return nil
	}
	if b.file == nil || b.lines > 1000+4*b.size() || b.bytes > 1<<20+4*b.least {
		return b.rewrite()
	}
	n, err := b.file.Write(b.pending.Bytes())
	if err != nil {
		b.file.Close() // the write's error counts
		b.file = nil   // the next Flush makes the file anew
		return fmt.Errorf("keeping original values: %w", err)
	}
	b.lines += bytes.Count(b.pending.Bytes()[:n], []byte("\n"))
	b.bytes += n
	b.pending.Reset()
	return nil
}

func (b *Book) size() int {
	n := len(b.others)
	for _, entries := range b.values {
		n += len(entries)
	}
	for _, lines := range b.unknown {
		n += len(lines)
	}
	return n
}

// rewrite makes the file anew from what is kept, and replaces the old one.
func (b *Book) rewrite() error {
	tmp, err := os.CreateTemp(filepath.Dir(b.name), ".originals-*")
	if err != nil {
		return fmt.Errorf("keeping original values: %w", err)
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // it is renamed away where all went well
	b.pending.Reset()
	b.write(line{Boot: b.boot})
	for _, e := range b.All() {
		b.write(e.line())
	}
	for _, name := range slices.Sorted(maps.Keys(b.others)) {
		b.write(line{Other: name, State: b.others[name]})
	}
	for _, l := range b.allUnknown() {
		b.write(l)
	}
	_, err = tmp.Write(b.pending.Bytes())
	if err == nil {
		err = os.Rename(tmp.Name(), b.name)
	}
	if err != nil {
		return fmt.Errorf("keeping original values: %w", errors.Join(err, tmp.Close()))
	}
	if b.file != nil {
		b.file.Close()
	}
	b.file, b.lines = tmp, bytes.Count(b.pending.Bytes(), []byte("\n"))
	b.bytes, b.least = b.pending.Len(), b.pending.Len()
	b.pending.Reset()
	return nil
}

// Close gives the file back.
func (b *Book) Close() error {
	err := b.Flush()
	if b.file != nil {
		err = errors.Join(err, b.file.Close())
		b.file = nil
	}
	return err
}
