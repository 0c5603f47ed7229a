package doctor

import (
	"fmt"
	"io/fs"
	"strings"
)

// text returns the text of a file without surrounding white space; it is "" if the file can't
// be read.
func (n *node) text(name string) string {
	data, err := fs.ReadFile(n.Host, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (n *node) exists(name string) bool {
	_, err := fs.Stat(n.Host, name)
	return err == nil
}

// names lists the entries of a folder; it is empty if the folder can't be read.
func (n *node) names(dir string) []string {
	entries, err := fs.ReadDir(n.Host, dir)
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// some joins the first few items.
func some(items []string) string {
	const most = 5
	if len(items) > most {
		return strings.Join(items[:most], ", ") + fmt.Sprintf(" and %d more", len(items)-most)
	}
	return strings.Join(items, ", ")
}
