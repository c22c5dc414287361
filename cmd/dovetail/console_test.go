package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// consoleOf runs the console with arguments until the test finishes or stop is called, and returns its address.
func consoleOf(t *testing.T, args ...string) (address string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	root := rootCommand()
	root.SetOut(write)
	root.SetArgs(append([]string{"console", "--port", "0"}, args...))
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		_ = write.CloseWithError(io.EOF) // never fails
		ended <- err
	}()
	var printed bytes.Buffer
	found := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`)
	buffer := make([]byte, 4096)
	for found.Find(printed.Bytes()) == nil {
		n, err := read.Read(buffer)
		printed.Write(buffer[:n])
		if err != nil {
			cancel()
			t.Fatalf("the console has ended: %v", <-ended)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, read) }() // the command must not wait for a reader
	stop = func() error { cancel(); return <-ended }
	return string(found.Find(printed.Bytes())), stop
}

func body(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestConsoleServesThePageAndAClusterFromFiles(t *testing.T) {
	address, stop := consoleOf(t, "-f", filepath.Join("..", "..", "internal", "console", "testdata", "cluster.yaml"))
	if page := body(t, address); !strings.Contains(page, `src="console.js"`) {
		t.Errorf("the page is %s", page)
	}
	if fleet := body(t, address+"api/v1/fleet"); !strings.Contains(fleet, `"name":"general-b"`) {
		t.Errorf("the fleet is %s", fleet)
	}
	if about := body(t, address+"api/v1/about"); !strings.Contains(about, `"doctor":false`) {
		t.Errorf("files are checked by the doctor: %s", about)
	}
	if err := stop(); err != nil {
		t.Errorf("an interrupt ends it with %v", err)
	}
}

// A recording may be of another cluster than that of KUBECONFIG, which is therefore not read.
func TestConsoleShowsARecordingWithoutACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "nowhere")
	address, stop := consoleOf(t, "--recording", firstRecording)
	about := body(t, address+"api/v1/about")
	if !strings.Contains(about, `"recorded":true`) || !strings.Contains(about, filepath.Base(firstRecording)) {
		t.Errorf("it is %s", about)
	}
	if spend := body(t, address+"api/v1/spend"); !strings.Contains(spend, `"recorded":true`) || !strings.Contains(spend, `"at"`) {
		t.Errorf("the spend is %s", spend)
	}
	if decisions := body(t, address+"api/v1/decisions"); !strings.Contains(decisions, `"rule"`) {
		t.Errorf("the decisions are %s", decisions)
	}
	if err := stop(); err != nil {
		t.Errorf("an interrupt ends it with %v", err)
	}
}

func TestConsoleNamesWhatItCannotUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	cluster := filepath.Join("..", "..", "internal", "console", "testdata", "cluster.yaml")
	for _, tt := range []struct{ name, want, args string }{
		{"a port that is in use", "port " + port + " is in use: name another with --port", "--port " + port + " -f " + cluster},
		{"a recording that does not exist", "--recording: open nix.rec", "--recording nix.rec -f " + cluster},
		{"a file that is no recording", "--recording: console_test.go: ", "--recording console_test.go"},
		{"a recording and a context that does not exist", "nowhere", "--recording " + firstRecording + " --context nowhere"},
		{"a file and a context", "-f and --kubeconfig", "--context a -f " + cluster},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := rootCommand()
			root.SetOut(io.Discard)
			root.SetArgs(append([]string{"console"}, strings.Fields(tt.args)...))
			if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want one with %q", err, tt.want)
			}
		})
	}
}
