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

// Filter selects entries. The zero value selects all.
type Filter struct {
	Since      time.Time
	Object     string // "namespace/name" of a pod, which includes its containers, or the whole name of another object
	Controller string
}

// Takes reports whether the filter selects an entry.
func (f Filter) Takes(e *Entry) bool {
	return (!e.Time.Before(f.Since) || !e.LastStepAt.Before(f.Since)) && (f.Controller == "" || e.Controller == f.Controller) && (f.Object == "" || f.Names(e.Object))
}

// Names reports whether the filter selects an object of decisions, for example "container a/b/c".
func (f Filter) Names(name string) bool {
	for _, kind := range []string{"container ", "pod ", "pool "} {
		name = strings.TrimPrefix(name, kind)
	}
	return name == f.Object || strings.HasPrefix(name, f.Object+"/")
}

// Read calls do with the selected entries of a folder's trail, the oldest first, until do fails.
// It passes a movement once, as a whole. It returns the number of lines that could not be read,
// for example because a crash truncated them.
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

// Last returns the newest selected entries of a folder's trail, at most n, the oldest first. If
// the trail can't be read to its end, it returns the entries before the error.
func Last(dir fs.FS, f Filter, n int) []Entry {
	var last []Entry
	Read(dir, f, func(e Entry) error { //nolint:errcheck // the documentation of Last covers errors
		if len(last) == n {
			last = append(last[:0], last[1:]...)
		}
		last = append(last, e)
		return nil
	})
	return last
}

// joiner replaces the entry of a movement's first step by the entry of the whole movement, which
// is written when the movement has ended. The first step waits for it, and so do all entries after
// the first step.
type joiner struct {
	waiting []Entry
	do      func(Entry) error
}

// mostWaiting bounds the number of waiting entries. Without a bound, the first step of a movement
// without a second step, or of one that a crash ended, would wait forever.
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

// hand passes entries on until the first one is a step that still waits for its end, or until at
// most that many wait.
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

// files lists the files of the trail, the oldest first. lumberjack adds the time of its end to the
// name of a full file.
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

// ended returns about when a file was full, or the far future if its name doesn't say. It adds a
// minute for entries that waited for the disk.
func ended(name string) time.Time {
	ext := path.Ext(fileName)
	at, err := time.Parse("2006-01-02T15-04-05.000", strings.TrimSuffix(strings.TrimPrefix(name, strings.TrimSuffix(fileName, ext)+"-"), ext))
	if err != nil {
		return time.Unix(1<<40, 0)
	}
	return at.Add(time.Minute)
}

// longest is the maximum length in bytes of a line; decisions are much shorter.
const longest = 1 << 20

func readFile(dir fs.FS, name string, f *Filter, do func(Entry) error) (broken int, err error) {
	file, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // rotated away since the folder was listed
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
