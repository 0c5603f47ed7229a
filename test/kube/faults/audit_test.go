package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// audited returns the API server's flags for an audit log of the requests that a rule names, and the log's path.
func audited(t *testing.T, rule string) (log string, flags []string) {
	t.Helper()
	dir := t.TempDir()
	log, policy := filepath.Join(dir, "audit.log"), filepath.Join(dir, "policy.yaml")
	text := fmt.Sprintf("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- %s\n- {level: None}\n", rule)
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return log, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log}
}

// request is an entry of the API server's audit log.
type request struct {
	StageTimestamp metav1.MicroTime
	RequestObject  policyv1.Eviction
	ResponseStatus metav1.Status
}

// requests reads an audit log.
func requests(t *testing.T, log string) (all []request) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r request
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("the audit log has %q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// patches is how many requests of an audit log were accepted from that time on.
func patches(t *testing.T, log string, from time.Time) (n int) {
	t.Helper()
	for _, r := range requests(t, log) {
		if r.ResponseStatus.Code == 200 && !r.StageTimestamp.Time.Before(from) {
			n++
		}
	}
	return n
}
