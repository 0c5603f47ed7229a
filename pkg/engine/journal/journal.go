// Package journal records on disk what the kernel's knobs had before Sluice changed them, so
// that the originals can be restored: when a setting is no longer wanted, after a crash, and by
// `sluice restore`.
//
// The file consists of JSON lines: a full entry for a value that the journal records, a shorter
// one for a value that it drops. The file is not synced: its contents are valid only until the
// next boot (the boot's id is the first line), so they need only outlive the process.
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
	"slices"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Entry is the original value of one knob of one cgroup.
type Entry struct {
	Object knobs.Object
	Knob   knobs.Knob
	Value  knobs.Value
	Wrote  knobs.Value // what Sluice wrote last; nil if it has recorded no write, or has lifted the quota
	Before knobs.Value // what it wrote before that: the kernel still has it if Sluice died in between; nil for nothing
	// Carried is what Sluice told the runtime last to record in place of the original; nil for nothing.
	Carried knobs.Value
	// CarriedBefore is what it told before that: the record still has it if the runtime has not made, or
	// has refused, the last update; nil for nothing, and once the runtime has made that update.
	CarriedBefore knobs.Value
}

// Journal is a journal in memory, with its file. It is for use by one goroutine.
type Journal struct {
	name           string // of the file; "" keeps the journal in memory alone
	boot           string
	file           *os.File
	values         map[string]map[knobs.Knob]Entry // by the cgroup's path
	others         map[string]json.RawMessage
	unknownLines   map[string]map[string]line // lines about knobs that only another version knows, by path and name
	changes        map[knobs.Level]uint64     // counts the changes of values at each level
	pending        bytes.Buffer               // lines that Flush has yet to write
	lines          int                        // number of lines in the file
	bytes          int                        // size of those lines
	rewrittenBytes int                        // the file's size when it was last rewritten
}

// line is one line of the file.
type line struct {
	Boot          string          `json:"boot,omitempty"`
	Path          string          `json:"path,omitempty"`
	Name          string          `json:"name,omitempty"`
	Level         knobs.Level     `json:"level,omitempty"`
	Knob          string          `json:"knob,omitempty"`
	Value         *string         `json:"value,omitempty"`
	Wrote         *string         `json:"wrote,omitempty"` // a line without this and without a value drops the entry
	Before        *string         `json:"before,omitempty"`
	Carried       *string         `json:"carried,omitempty"`
	CarriedBefore *string         `json:"carriedBefore,omitempty"`
	Other         string          `json:"other,omitempty"`
	State         json.RawMessage `json:"state,omitempty"`
}

// Open reads the journal of this boot; with the name "" the journal has no file. A line that
// can't be read costs only its own value: the error names the first such line, and the returned
// Journal is usable nevertheless.
func Open(name, boot string) (*Journal, error) {
	b, err := Read(name, boot)
	if name != "" {
		err = errors.Join(err, b.rewrite())
	}
	return b, err
}

// Read is like Open, but does not change the file until the first Flush.
func Read(name, boot string) (*Journal, error) {
	b := &Journal{name: name, boot: boot, values: map[string]map[knobs.Knob]Entry{}, others: map[string]json.RawMessage{}, unknownLines: map[string]map[string]line{}, changes: map[knobs.Level]uint64{}}
	if name == "" {
		return b, nil
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	return b, errors.Join(err, b.replay(data))
}

// TakeOver adds the entries of another file of this boot that b doesn't have, writes them, and
// then removes that file. A missing file has no entries.
func (b *Journal) TakeOver(name string) error {
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

// Add adds the entries of another Journal that b doesn't have. If both have an original of the
// same knob, the one in b stays.
func (b *Journal) Add(other *Journal) {
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
		if _, ok := b.unknownLines[l.Path][l.Knob]; !ok {
			b.putUnknown(l)
			b.write(l)
		}
	}
}

func (b *Journal) replay(data []byte) error {
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

// errOtherBoot reports that the journal was written in an earlier boot, whose settings are
// gone.
var errOtherBoot = errors.New("written in an earlier boot")

func (b *Journal) read(text []byte, header bool) error {
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
	if l.Wrote != nil {
		e.Before = e.Wrote
	}
	for text, into := range map[*string]*knobs.Value{l.Value: &e.Value, l.Wrote: &e.Wrote, l.Before: &e.Before, l.Carried: &e.Carried, l.CarriedBefore: &e.CarriedBefore} {
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

func (b *Journal) add(e Entry) {
	entries := b.values[e.Object.Path]
	if entries == nil {
		entries = map[knobs.Knob]Entry{}
		b.values[e.Object.Path] = entries
	}
	entries[e.Knob] = e
	b.changes[e.Object.Level]++
}

func (b *Journal) remove(path string, knob knobs.Knob) {
	b.changes[b.values[path][knob].Object.Level]++
	delete(b.values[path], knob)
	if len(b.values[path]) == 0 {
		delete(b.values, path)
	}
}

// putUnknown records a line about a knob that only another version knows.
func (b *Journal) putUnknown(l line) {
	switch was := b.unknownLines[l.Path][l.Knob]; {
	case l.Value == nil && l.Wrote == nil:
		delete(b.unknownLines[l.Path], l.Knob)
		return
	case l.Value == nil && was.Value == nil:
		return // a write without a recorded original is useless
	case l.Value == nil:
		was.Wrote = l.Wrote
		l = was
	}
	if b.unknownLines[l.Path] == nil {
		b.unknownLines[l.Path] = map[string]line{}
	}
	b.unknownLines[l.Path][l.Knob] = l
}

// allUnknown lists the lines about knobs that only other versions know, by path and name.
func (b *Journal) allUnknown() []line {
	var all []line
	for _, path := range slices.Sorted(maps.Keys(b.unknownLines)) {
		for _, name := range slices.Sorted(maps.Keys(b.unknownLines[path])) {
			all = append(all, b.unknownLines[path][name])
		}
	}
	return all
}

func (b *Journal) removeAll(path string) {
	delete(b.unknownLines, path)
	for _, e := range b.values[path] {
		b.changes[e.Object.Level]++
	}
	delete(b.values, path)
}

func (b *Journal) put(name string, state json.RawMessage) {
	if len(state) == 0 || string(state) == "null" {
		delete(b.others, name)
		return
	}
	b.others[name] = slices.Clone(state)
}

// Record records a knob's original value, in place of an earlier one. The next Flush writes it to
// disk.
func (b *Journal) Record(o knobs.Object, knob knobs.Knob, value knobs.Value) {
	now, ok := b.values[o.Path][knob]
	if ok && now.Value == value {
		return
	}
	e := Entry{Object: o, Knob: knob, Value: value, Carried: now.Carried, CarriedBefore: now.CarriedBefore}
	b.add(e)
	b.write(e.line())
}

// RecordWrite records the value that Sluice is about to write to a knob whose original is recorded.
func (b *Journal) RecordWrite(path string, knob knobs.Knob, value knobs.Value) {
	e, ok := b.values[path][knob]
	if !ok || e.Wrote == value {
		return
	}
	e.Before, e.Wrote = e.Wrote, value
	b.add(e)
	text := knobs.FormatValue(value)
	b.write(line{Path: path, Knob: knob.String(), Wrote: &text})
}

// RecordLift records that Sluice is about to lift a quota that it has set itself. The entry then has no
// write, as where Sluice lifts the kubelet's quota, and Before is what the kernel has until the lift.
func (b *Journal) RecordLift(path string, knob knobs.Knob) {
	e, ok := b.values[path][knob]
	if !ok || e.Wrote == nil {
		return
	}
	e.Before, e.Wrote = e.Wrote, nil
	b.add(e)
	b.write(e.line())
}

// RecordCarried records the value that Sluice is about to tell the runtime to record for a knob whose
// original is recorded.
func (b *Journal) RecordCarried(path string, knob knobs.Knob, value knobs.Value) {
	e, ok := b.values[path][knob]
	if !ok || e.Carried == value {
		return
	}
	e.CarriedBefore, e.Carried = e.Carried, value
	b.add(e)
	b.write(e.line())
}

// ForgetCarriedBefore removes CarriedBefore from the entries of a cgroup, since the runtime's record
// has Carried.
func (b *Journal) ForgetCarriedBefore(path string) {
	for knob := range knobs.Knobs {
		if e, ok := b.values[path][knob]; ok && e.CarriedBefore != nil {
			e.CarriedBefore = nil
			b.add(e)
			b.write(e.line())
		}
	}
}

func (e Entry) line() line {
	text := knobs.FormatValue(e.Value)
	l := line{Path: e.Object.Path, Name: e.Object.Name, Level: e.Object.Level, Knob: e.Knob.String(), Value: &text}
	l.Wrote, l.Before = textOf(e.Wrote), textOf(e.Before)
	l.Carried, l.CarriedBefore = textOf(e.Carried), textOf(e.CarriedBefore)
	return l
}

// textOf is a value's text; nil for none.
func textOf(v knobs.Value) *string {
	if v == nil {
		return nil
	}
	text := knobs.FormatValue(v)
	return &text
}

// Original returns the recorded original of a knob, and whether there is one.
func (b *Journal) Original(path string, knob knobs.Knob) (knobs.Value, bool) {
	e, ok := b.values[path][knob]
	return e.Value, ok
}

// Entry returns the entry of a knob, and whether there is one.
func (b *Journal) Entry(path string, knob knobs.Knob) (Entry, bool) {
	e, ok := b.values[path][knob]
	return e, ok
}

// Version changes whenever an entry of a cgroup at that level changes.
func (b *Journal) Version(level knobs.Level) uint64 { return b.changes[level] }

// Drop removes the entry of a knob whose original has been restored.
func (b *Journal) Drop(path string, knob knobs.Knob) {
	if _, ok := b.values[path][knob]; ok {
		b.remove(path, knob)
		b.write(line{Path: path, Knob: knob.String()})
	}
}

// Forget removes all entries of a cgroup that is gone.
func (b *Journal) Forget(path string) {
	if len(b.values[path]) > 0 || len(b.unknownLines[path]) > 0 {
		b.removeAll(path)
		b.write(line{Path: path})
	}
}

// All lists the entries by path and knob.
func (b *Journal) All() []Entry {
	var all []Entry
	for _, path := range slices.Sorted(maps.Keys(b.values)) {
		knobs := slices.SortedFunc(maps.Values(b.values[path]), func(x, y Entry) int { return cmp.Compare(x.Knob, y.Knob) })
		all = append(all, knobs...)
	}
	return all
}

// SaveState records state that is not a knob's original, under a name; nil removes it.
func (b *Journal) SaveState(name string, state any) error {
	raw, err := json.Marshal(state)
	if err != nil {
		return err
	}
	b.put(name, raw)
	b.write(line{Other: name, State: raw})
	return nil
}

// State reads what SaveState recorded under a name; ok is false if there is nothing.
func (b *Journal) State(name string, into any) (ok bool, err error) {
	raw, ok := b.others[name]
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(raw, into)
}

// RestoreState restores the state that a journal keeps under a name, if any, and then removes it from the
// journal. If restore fails, the state stays for the next attempt.
func RestoreState[T any](j *Journal, name string, restore func(T) error) error {
	var state T
	if has, err := j.State(name, &state); err != nil || !has {
		return err
	}
	if err := restore(state); err != nil {
		return err
	}
	return j.SaveState(name, nil)
}
