package daemon

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// allowed returns the CPUs that each thread of this process may run on.
func allowed(t *testing.T) (lists []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // a thread may have ended
		if _, list, found := strings.Cut(string(text), "\nCpus_allowed_list:"); found {
			list, _, _ = strings.Cut(list, "\n")
			lists = append(lists, strings.TrimSpace(list))
		}
	}
	return lists
}

// A run starts on the CPUs to which the previous run was confined.
func TestOwnCPUs(t *testing.T) {
	const asNext = "SLUICE_TEST_OWN_CPUS"
	if folder := os.Getenv(asNext); folder != "" { // this process is the next run
		if err := newOwnCPUs(folder).begin(); err != nil {
			t.Fatal(err)
		}
		for _, list := range allowed(t) {
			if list != os.Getenv(asNext+"_WANT") {
				t.Errorf("a thread may run on CPUs %s", list)
			}
		}
		return
	}
	may, err := cpuset.Parse(allowed(t)[0])
	if err != nil || may.IsEmpty() {
		t.Fatal(may, err)
	}
	folder := filepath.Join(t.TempDir(), "run")
	own := newOwnCPUs(folder)
	if err := own.begin(); err != nil {
		t.Errorf("without a last run: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { own.run(ctx, logrus.New()); close(done) }()
	if err := own.confine(may); err != nil { // keeps the CPUs as they are, because other tests run in this process
		t.Error(err)
	}
	one := cpuset.Of(may.First())
	for _, cpus := range []cpuset.Set{may, one} {
		deadline := time.Now().Add(time.Minute)
		for {
			if text, _ := os.ReadFile(own.file); string(text) == cpus.String() {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the file does not come to say %s", cpus)
			}
			time.Sleep(time.Millisecond)
		}
		if cpus == may && may != one {
			own.newest <- one
		}
	}
	stop()
	<-done
	for range 10 { // the last known CPUs are kept, also at the end
		own.newest <- one
		if err := os.Remove(own.file); err != nil {
			t.Fatal(err)
		}
		own.run(ctx, logrus.New())
	}
	next := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOwnCPUs$")
	next.Env = append(os.Environ(), asNext+"="+folder, asNext+"_WANT="+one.String())
	if out, err := next.CombinedOutput(); err != nil {
		t.Errorf("the next run: %v\n%s", err, out)
	}
}
