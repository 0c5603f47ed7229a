package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// Filter chooses entries; its zero value takes all.
type Filter struct {
	Since      time.Time
	Object     string // a pod "namespace/name" with its containers, or an object by its whole name
	Controller string
}

// Takes reports whether the filter takes an entry.
func (f Filter) Takes(e *Entry) bool {
	return (!e.Time.Before(f.Since) || !e.LastStepAt.Before(f.Since)) && (f.Controller == "" || e.Controller == f.Controller) && (f.Object == "" || f.Names(e.Object))
}

// Names reports whether an object of decisions, as "container a/b/c", is the filter's.
func (f Filter) Names(name string) bool {
	for _, kind := range []string{"container ", "pod ", "pool "} {
		name = strings.TrimPrefix(name, kind)
	}
	return name == f.Object || strings.HasPrefix(name, f.Object+"/")
}

// Read hands over the entries in a folder's trail that the filter takes, the oldest
// first, until do fails. A movement is handed over once, as a whole. What was cut off by a
// crash is left out, and counted.
func Read(dir fs.FS, f Filter, do func(Entry) error) (broken int, err error) {
	names, err := files(dir)
	if err != nil {
		return 0, err
	}
	j := joiner{do: do}
	for _, name := range names {
		if ended(name).Before(f.Since) {
			continue
		}
		n, err := readFile(dir, name, &f, j.add)
		broken += n
		if err != nil {
			return broken, err
		}
	}
	return broken, j.hand(0)
}

// Last returns the newest entries in a folder's trail that the filter takes, at most n, the
// oldest first. A trail that can't be read to its end yields what comes before.
func Last(dir fs.FS, f Filter, n int) []Entry {
	var last []Entry
	Read(dir, f, func(e Entry) error { //nolint:errcheck // see above
		if len(last) == n {
			last = append(last[:0], last[1:]...)
		}
		last = append(last, e)
		return nil
	})
	return last
}

// joiner puts the line that tells of a movement as a whole in the place of the line that
// told of its first step. That one waits for it, with all that follow.
type joiner struct {
	waiting []Entry
	do      func(Entry) error
}

// mostWaiting is how many entries wait: the first of a movement that had no second
// step, or that a crash ended, waits in vain.
const mostWaiting = 1000

func (j *joiner) add(e Entry) error {
	if e.Steps > 1 {
		first := slices.IndexFunc(j.waiting, func(w Entry) bool {
			return w.Time.Equal(e.Time) && w.Controller == e.Controller && w.Object == e.Object && w.Action == e.Action
		})
		if first >= 0 {
			j.waiting[first] = e
			return j.hand(mostWaiting)
		}
	}
	j.waiting = append(j.waiting, e)
	return j.hand(mostWaiting)
}

// hand hands over entries until the first waits for its end, and no more than most wait.
func (j *joiner) hand(most int) error {
	n := 0
	for ; n < len(j.waiting) && (!j.waiting[n].Ongoing || len(j.waiting)-n > most); n++ {
		if err := j.do(j.waiting[n]); err != nil {
			return err
		}
	}
	j.waiting = slices.Delete(j.waiting, 0, n)
	return nil
}

// files are the trail's, the oldest first: lumberjack puts the time of its end into
// the name of a full one.
func files(dir fs.FS) ([]string, error) {
	ext := path.Ext(fileName)
	names, err := fs.Glob(dir, strings.TrimSuffix(fileName, ext)+"-*"+ext)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	if _, err := fs.Stat(dir, fileName); err == nil {
		names = append(names, fileName)
	}
	return names, nil
}

// ended is about when a file was full; the far future where its name doesn't tell. A
// minute covers entries that waited for the disk.
func ended(name string) time.Time {
	ext := path.Ext(fileName)
	at, err := time.Parse("2006-01-02T15-04-05.000", strings.TrimSuffix(strings.TrimPrefix(name, strings.TrimSuffix(fileName, ext)+"-"), ext))
	if err != nil {
		return time.Unix(1<<40, 0)
	}
	return at.Add(time.Minute)
}

// longest is the longest line that is read; no decision is near it.
const longest = 1 << 20

func readFile(dir fs.FS, name string, f *Filter, do func(Entry) error) (broken int, err error) {
	file, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // rotated away in between
	}
	if err != nil {
		return 0, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	return scan(file, f, do)
}

func scan(r io.Reader, f *Filter, do func(Entry) error) (broken int, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		var e Entry
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			broken++
			continue
		}
		if f.Takes(&e) {
			if err := do(e); err != nil {
				return broken, err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return broken, fmt.Errorf("the audit trail: %w", err)
	}
	return broken, nil
}
