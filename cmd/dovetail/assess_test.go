package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/assess"
)

// proxied is the kubeconfig of a proxy in front of an API server, and what was requested of it.
func proxied(t *testing.T, kubeconfig string) (path string, requests func() []string) {
	t.Helper()
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`http://[0-9.:]+`).Find(data)
	behind, err := url.Parse(string(address))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string
	proxy := httputil.NewSingleHostReverseProxy(behind)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Method+" "+r.URL.RequestURI())
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(data), string(address), server.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

// An assessment needs no other verbs than get and list: every request is a GET.
func TestAssessOnlyReads(t *testing.T) {
	path, requests := proxied(t, apiServerOfNothing(t))
	stdout, stderr, err := command("", "assess", "--kubeconfig", path, "--prices", "catalog")
	if err != nil || !strings.HasPrefix(stdout, "This cluster has no nodes") {
		t.Fatalf("error %v, %q, %q", err, stdout, stderr)
	}
	for _, r := range requests() {
		if !strings.HasPrefix(r, "GET ") {
			t.Errorf("it requests %s", r)
		}
	}
	if len(requests()) < 10 {
		t.Errorf("only %d requests were recorded", len(requests()))
	}
}

// A cluster from files is assessed without a cluster, and the page for a browser is complete.
func TestAssessFiles(t *testing.T) {
	t.Setenv("CLUSTER_NAME", "another")
	page := filepath.Join(t.TempDir(), "report.html")
	stdout, stderr, err := command("", "assess", "-f", "testdata/assess.yaml", "-o", "json", "--html", page)
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	var report assess.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	if report.Cluster != "" {
		t.Errorf("the cluster of the files is named %q, by CLUSTER_NAME of a live one", report.Cluster)
	}
	done := report.Outcome(assess.Consolidated)
	if report.Now.Nodes != 7 || report.Now.HourlyCost <= 0 || done.HourlySavings <= 0 || len(report.Moves) == 0 {
		t.Errorf("%d nodes cost $%.4f/h; consolidation saves $%.4f/h in %d moves", report.Now.Nodes, report.Now.HourlyCost,
			done.HourlySavings, len(report.Moves))
	}
	if !strings.Contains(report.Prices, "built-in catalog of us-east-1, of ") {
		t.Errorf("the prices are %q", report.Prices)
	}
	html, err := os.ReadFile(page)
	if err != nil || !strings.HasPrefix(string(html), "<!doctype html>") || !strings.HasSuffix(string(html), "</html>\n") {
		t.Errorf("the page is not complete (%v)", err)
	}
}

// assessPage shows the report of testdata/assess.yaml.
const assessPage = "../../docs/assess.md"

// The page shows what the command prints. UPDATE=1 writes it anew: prices change with the built-in catalog.
func TestAssessPage(t *testing.T) {
	stdout, stderr, err := command("", "assess", "-f", "testdata/assess.yaml")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	page, err := os.ReadFile(assessPage)
	if err != nil {
		t.Fatal(err)
	}
	const begin = "The last line prints this:\n\n```\n"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatalf("%s has no block of what the command prints", assessPage)
	}
	want := before + begin + stdout + "```\n" + after
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(assessPage, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != want {
		t.Errorf("%s is stale: run UPDATE=1 go test ./cmd/dovetail -run TestAssessPage. The command prints:\n%s", assessPage, stdout)
	}
}

func TestAssessUsage(t *testing.T) {
	for _, args := range [][]string{{"--prices", "guessed"}, {"extra"}, {"-f", "x", "--kubeconfig", "y"}} {
		if _, _, err := command("", append([]string{"assess"}, args...)...); codeOf(err) != exitUsage {
			t.Errorf("assess %v: %v, want a usage error", args, err)
		}
	}
}
