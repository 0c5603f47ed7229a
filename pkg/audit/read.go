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
	return !e.Time.Before(f.Since) && (f.Controller == "" || e.Controller == f.Controller) && (f.Object == "" || f.Names(e.Object))
}

// Names reports whether an object of decisions, as "container a/b/c", is the filter's.
func (f Filter) Names(name string) bool {
	for _, kind := range []string{"container ", "pod ", "pool "} {
		name = strings.TrimPrefix(name, kind)
	}
	return name == f.Object || strings.HasPrefix(name, f.Object+"/")
}

// Read hands over the entries in a folder's trail that the filter takes, the oldest
// first, until do fails. What was cut off by a crash is left out, and counted.
func Read(dir fs.FS, f Filter, do func(Entry) error) (broken int, err error) {
	names, err := files(dir)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if ended(name).Before(f.Since) {
			continue
		}
		n, err := readFile(dir, name, &f, do)
		broken += n
		if err != nil {
			return broken, err
		}
	}
	return broken, nil
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
