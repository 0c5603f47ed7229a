package config

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

// Watch notices what editors and ConfigMaps do to a file, and reports it once the change is
// complete.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) { must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	config := filepath.Join(dir, "sluice.yaml")

	// This is the volume of a ConfigMap: sluice.yaml → ..data/sluice.yaml, ..data → a folder.
	must(os.Mkdir(filepath.Join(dir, "..1"), 0o700))
	write("..1/sluice.yaml", "first")
	must(os.Symlink("..1", filepath.Join(dir, "..data")))
	must(os.Symlink("..data/sluice.yaml", config))

	read := make(chan string, 16)
	asked := make(chan bool, 16)
	hangup := make(chan os.Signal, 1)
	w := Watcher{File: config, Log: logrus.New(), Asks: hangup, Read: func(a bool) {
		text, err := os.ReadFile(config)
		if err != nil {
			text = []byte("none")
		}
		read <- string(text)
		asked <- a
	}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	defer func() { cancel(); <-done }()
	next := func(want string, byHand bool) {
		t.Helper()
		deadline := time.After(20 * time.Second)
		for {
			select {
			case got := <-read:
				if a := <-asked; got == want {
					if a != byHand {
						t.Errorf("%s: asked %v", want, a)
					}
					return
				}
			case <-deadline:
				t.Fatalf("%q is not read", want)
			}
		}
	}
	next("first", false)
	must(os.Mkdir(filepath.Join(dir, "..2"), 0o700))
	write("..2/sluice.yaml", "second")
	must(os.Symlink("..2", filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	next("second", false)

	// One kind of editor replaces the file by a new one.
	write("sluice.yaml.swp", "third")
	must(os.Rename(filepath.Join(dir, "sluice.yaml.swp"), config))
	next("third", false)
	// Another kind moves the old file away and writes the new one in pieces.
	must(os.Rename(config, config+"~"))
	file, err := os.Create(config)
	must(err)
	for _, part := range []string{"fou", "rth"} {
		_, err = file.WriteString(part)
		must(err)
	}
	must(file.Close())
	next("fourth", false)
	// A third kind writes the file in place.
	write("sluice.yaml", "fifth")
	next("fifth", false)
	must(os.Remove(config))
	next("none", false)
	hangup <- os.Interrupt
	next("none", true)
}

// If a folder can't be watched, the signal still works.
func TestWatchWithoutFolder(t *testing.T) {
	t.Parallel()
	log := logrus.New()
	log.SetOutput(t.Output())
	asked := make(chan bool, 16)
	hangup := make(chan os.Signal, 1)
	w := Watcher{File: "/nonexistent/sluice.yaml", Log: log, Asks: hangup, Read: func(a bool) { asked <- a }}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	defer func() { cancel(); <-done }()
	hangup <- os.Interrupt
	for !<-asked {
	}
}
