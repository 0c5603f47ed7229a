package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

func (b *Journal) write(l line) {
	if b.name == "" {
		return
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // a line consists of strings and numbers, which can't fail to encode
	}
	b.pending.Write(append(text, '\n'))
}

// Flush appends the new lines to the file in one write. After an error the caller must not
// write to the kernel anything that was recorded since the last Flush.
func (b *Journal) Flush() error {
	if b.pending.Len() == 0 {
		return nil
	}
	if b.file == nil || b.lines > 1000+4*b.size() || b.bytes > 1<<20+4*b.rewrittenBytes {
		return b.rewrite()
	}
	n, err := b.file.Write(b.pending.Bytes())
	if err != nil {
		b.file.Close() // the error of the write is the one to report
		b.file = nil   // the next Flush rewrites the file
		return fmt.Errorf("keeping original values: %w", err)
	}
	b.lines += bytes.Count(b.pending.Bytes()[:n], []byte("\n"))
	b.bytes += n
	b.pending.Reset()
	return nil
}

func (b *Journal) size() int {
	n := len(b.others)
	for _, entries := range b.values {
		n += len(entries)
	}
	for _, lines := range b.unknownLines {
		n += len(lines)
	}
	return n
}

// rewrite writes all entries to a new file, which replaces the old one.
func (b *Journal) rewrite() error {
	tmp, err := os.CreateTemp(filepath.Dir(b.name), ".originals-*")
	if err != nil {
		return fmt.Errorf("keeping original values: %w", err)
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // fails if the rename succeeded
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
	b.bytes, b.rewrittenBytes = b.pending.Len(), b.pending.Len()
	b.pending.Reset()
	return nil
}

// Close closes the file.
func (b *Journal) Close() error {
	err := b.Flush()
	if b.file != nil {
		err = errors.Join(err, b.file.Close())
		b.file = nil
	}
	return err
}
