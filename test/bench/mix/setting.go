package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/test/bench/mix/report"
	"github.com/sluice-dev/sluice/test/runtime"
)

// setting is one way to manage the node.
type setting struct {
	name  string
	hog   place
	enter func(*bed, demand) (leave func() error, err error) // nil if there is nothing to set
}

//go:embed sluice.yaml
var defaultConfig string

// settings returns the named settings of the comparison or of the mechanisms. A name that ends with
// .yaml is a file: Sluice with that configuration.
func settings(names []string, config string) ([]setting, error) {
	known := []setting{
		{name: report.Alone},
		{name: report.Again},
		{name: report.Unmanaged, hog: beside},
		{name: report.Kubernetes, hog: batchPods},
		{name: report.Sluice, hog: batchPods, enter: func(b *bed, _ demand) (func() error, error) { return b.manage(config) }},
	}
	for _, m := range mechanisms() {
		known = append(known, setting{name: m.name, hog: batchPods, enter: m.enter})
	}
	var chosen []setting
	for _, name := range names {
		if strings.HasSuffix(name, ".yaml") {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("setting %q: %w", name, err)
			}
			chosen = append(chosen, setting{
				name: strings.TrimSuffix(filepath.Base(name), ".yaml"), hog: batchPods,
				enter: func(b *bed, _ demand) (func() error, error) { return b.manage(string(text)) },
			})
			continue
		}
		i := slices.IndexFunc(known, func(s setting) bool { return s.name == name })
		if i < 0 {
			var all []string
			for _, s := range known {
				all = append(all, s.name)
			}
			return nil, fmt.Errorf("setting %q: not one of %s, nor the .yaml file of a configuration of Sluice", name, strings.Join(all, ", "))
		}
		chosen = append(chosen, known[i])
	}
	return chosen, nil
}

// manage runs Sluice, see start.
func (b *bed) manage(config string) (leave func() error, err error) {
	_, leave, err = b.start(config, false)
	return leave, err
}

// start runs Sluice. $CRI in the configuration stands for the runtime's socket. If the rest is unseen,
// Sluice sees the pods' work alone. leave restores everything that Sluice changed.
func (b *bed) start(config string, unseen bool) (sluice *runtime.Sluice, leave func() error, err error) {
	before, err := b.rt.ClassSettings()
	if err != nil {
		return nil, nil, err
	}
	sluice, err = b.rt.StartSluice(runtime.SluiceOptions{Binary: b.binary, Quiet: unseen, Config: strings.ReplaceAll(config, "$CRI", b.rt.Socket())})
	if err != nil {
		return nil, nil, err
	}
	return sluice, func() error {
		if err := sluice.Stop(); err != nil {
			return err
		}
		if _, err := sluice.Restore(); err != nil {
			return err
		}
		after, err := b.rt.ClassSettings()
		if left := before.Differences(after); err == nil && len(left) > 0 {
			err = fmt.Errorf("sluice left behind: %s", strings.Join(left, "; "))
		}
		return err
	}, nil
}

// write is a file of a cgroup and its new text.
type write struct {
	of         cgroup
	file, text string
}

func (w write) do() error { return w.of.WriteFile(w.file, w.text) }

// cgroup is what a write writes to.
type cgroup interface {
	File(name string) (string, error)
	WriteFile(name, text string) error
}

// sharesOf is the write of CPU shares, or on cgroup v2 of the weight to which the kubelet converts them.
func sharesOf(c cgroup, shares int) write {
	file := weightFile(c)
	if file == "cpu.weight" {
		shares = int(runtime.Weight(int64(shares)))
	}
	return write{c, file, strconv.Itoa(shares)}
}

// weightFile names the file of a cgroup's CPU weight.
func weightFile(c cgroup) string {
	if _, err := c.File("cpu.weight"); err == nil {
		return "cpu.weight"
	}
	return "cpu.shares"
}

// apply writes the files. The returned function writes the old texts back, in reverse order.
// It also writes back the weight of a cgroup after cpu.idle, since 0 there resets the weight to the
// kernel's default.
func apply(writes []write) (func() error, error) {
	var done []write
	undo := func() error {
		var errs []error
		for _, w := range slices.Backward(done) {
			errs = append(errs, w.do())
		}
		return errors.Join(errs...)
	}
	for _, w := range writes {
		files := []string{w.file}
		if w.file == "cpu.idle" {
			files = []string{weightFile(w.of), w.file}
		}
		var old []write
		for _, file := range files {
			text, err := w.of.File(file)
			if err != nil {
				return nil, errors.Join(err, undo())
			}
			old = append(old, write{w.of, file, text})
		}
		if err := w.do(); err != nil {
			return nil, errors.Join(err, undo())
		}
		done = append(done, old...)
	}
	return undo, nil
}
