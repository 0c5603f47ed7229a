package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

// cluster serves a list of the nodes n1 and n2, of which n2 vanishes after that.
func cluster(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.Method + " " + r.URL.Path {
	case "GET /api/v1/nodes":
		fmt.Fprint(w, `{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [{"metadata": {"name": "n1"}}, {"metadata": {"name": "n2"}}]}`)
	case "PATCH /api/v1/nodes/n1/status":
		fmt.Fprint(w, `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}`)
	}
}

// A node that vanishes while all are dealt with is no failure, and one that was named and is not there is.
func TestUninstallWithoutNode(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	server := httptest.NewServer(http.HandlerFunc(cluster))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "config")
	config := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args string
		exit int
		says string
	}{
		{"--all-nodes", 0, ""},
		{"--all-nodes --topology", 0, ""},
		{"--node-name n1", 0, ""},
		{"--node-name n2", cli.ExitFailure, "node n2: "},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"uninstall", "--kubeconfig", kubeconfig}, strings.Fields(test.args)...)
		if exit := execute(t.Context(), args, &out, &errs); exit != test.exit || !strings.Contains(errs.String(), test.says) || (exit == 0) != (errs.Len() == 0) {
			t.Errorf("sluice-kube uninstall %s: exit status %d, want %d; %s%s", test.args, exit, test.exit, out.String(), errs.String())
		}
	}
}
