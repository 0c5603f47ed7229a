package grantrecord

import (
	"fmt"
	"io/fs"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
)

const file = "var/lib/kubelet/allocated_pods_state"

// disk is a host's file system that may hang.
type disk struct {
	mu    sync.Mutex
	files fstest.MapFS
	hangs chan struct{} // blocks reads until it is closed; nil if reads don't block
}

func (d *disk) Open(name string) (fs.File, error) {
	d.mu.Lock()
	hangs := d.hangs
	d.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files.Open(name)
}

// write replaces the file by a new one.
func (d *disk) write(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = fstest.MapFS{file: &fstest.MapFile{Data: []byte(text), ModTime: time.Now()}}
}

func (d *disk) hang(hangs chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hangs = hangs
}

// granting returns a record that grants one container that many CPUs.
func granting(cpus int) string {
	return fmt.Sprintf(`{"data":"{\"entries\":{\"u\":{\"ContainerResources\":{\"c\":{\"requests\":{\"cpu\":\"%d\"}}}}}}","checksum":1}`, cpus)
}

func TestHungDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, _ := logtest.NewNullLogger()
		d := &disk{}
		w := New(d, false, log)
		w.Follow(file)
		w.Refresh(time.Second)
		if w.Known() || w.TakeChanged() {
			t.Error("there is a record without a file")
		}
		d.write(granting(2))
		hangs := make(chan struct{})
		d.hang(hangs)
		began := time.Now()
		for range 3 {
			w.Refresh(50 * time.Millisecond)
		}
		if took := time.Since(began); took > 150*time.Millisecond {
			t.Errorf("three looks at a disk that hangs took %s", took)
		}
		if w.Known() {
			t.Error("a record was read from a disk that hangs")
		}
		close(hangs)
		d.hang(nil)
		synctest.Wait()
		w.Refresh(0)
		if got := w.Of("u", "c"); !w.TakeChanged() || w.TakeChanged() || got.CPU != 2000 {
			t.Errorf("granted %+v", got)
		}
		time.Sleep(time.Second) // the file's time changes
		d.write(granting(3))
		if w.Refresh(50 * time.Millisecond); w.Of("u", "c").CPU != 3000 {
			t.Errorf("granted %+v after a resize", w.Of("u", "c"))
		}
	})
}

func TestProblemIsLoggedOnce(t *testing.T) {
	t.Parallel()
	log, hook := logtest.NewNullLogger()
	d := &disk{}
	w := New(d, true, log)
	w.Follow(file)
	for i := range 3 {
		d.files = fstest.MapFS{file: &fstest.MapFile{Data: []byte("nonsense"), ModTime: time.Unix(int64(i), 0)}}
		w.Refresh(0)
	}
	if s := w.Status(); w.Known() || s.Problem == "" || len(hook.AllEntries()) != 1 {
		t.Errorf("status %+v, %d log entries", s, len(hook.AllEntries()))
	}
	d.write(granting(1))
	if w.Refresh(0); !w.Known() || w.Status().Problem != "" || w.Status().Pods != 1 {
		t.Errorf("status %+v", w.Status())
	}
}
