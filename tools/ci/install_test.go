package ci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// releaseFiles are the files of a small release by name, with programs that print their name.
func releaseFiles(t *testing.T, platform string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	var sums strings.Builder
	for _, name := range []string{"dovetail", "dovetail-lab"} {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		w := tar.NewWriter(z)
		script := "#!/bin/sh\necho this is " + name + "\n"
		for file, text := range map[string]string{"LICENSE": "license", name: script} {
			if err := w.WriteHeader(&tar.Header{Name: file, Mode: 0o755, Size: int64(len(text))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if w.Close() != nil || z.Close() != nil {
			t.Fatal("cannot pack")
		}
		archive := name + "-" + platform + ".tar.gz"
		out[archive] = packed.Bytes()
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(packed.Bytes()), archive)
	}
	out["checksums.txt"] = []byte(sums.String())
	return out
}

// directory writes the files of a release.
func directory(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// install runs the script as a person does. PATH has the programs of tools alone, with a uname that prints system and processor.
func install(t *testing.T, uname string, tools []string, env []string, args ...string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	for _, tool := range tools {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	system, machine, _ := strings.Cut(uname, " ")
	script := fmt.Sprintf("#!/bin/sh\ncase $1 in -s) echo %s ;; -m) echo %s ;; esac\n", system, machine)
	if err := os.WriteFile(filepath.Join(bin, "uname"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"install.sh"}, args...)...)
	cmd.Dir, cmd.Env = root, append([]string{"PATH=" + bin, "HOME=" + t.TempDir()}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tools are the programs that the script calls, without those that load files.
var tools = []string{"awk", "cat", "chmod", "cp", "cut", "gzip", "ln", "mkdir", "mktemp", "mv", "rm", "sha256sum", "tar"}

const linux = "Linux x86_64"

// Programs are installed on a computer without Go: from a directory, and from a server by what the computer loads files with.
func TestInstall(t *testing.T) {
	server := httptest.NewServer(http.FileServer(http.Dir(directory(t, releaseFiles(t, "linux-amd64")))))
	defer server.Close()
	for _, tt := range []struct {
		name, from string
		tools      []string
	}{
		{"directory", directory(t, releaseFiles(t, "linux-amd64")), tools},
		{"curl", server.URL, append(slices.Clone(tools), "curl")},
		{"wget", server.URL, append(slices.Clone(tools), "wget")},
	} {
		if loader := tt.tools[len(tt.tools)-1]; tt.name == loader {
			if _, err := exec.LookPath(loader); err != nil {
				continue // the others hold what does not depend on it
			}
		}
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "bin")
			out, err := install(t, linux, tt.tools, nil, "--from", tt.from, "--dir", dir, "--lab", "--plugin")
			if err != nil || !strings.Contains(out, "installed "+dir+"/dovetail\n") || !strings.Contains(out, "this is dovetail\n") ||
				!strings.Contains(out, dir+" is not in PATH") {
				t.Fatalf("%v\n%s", err, out)
			}
			for name, want := range map[string]string{
				"dovetail": "this is dovetail\n", "dovetail-lab": "this is dovetail-lab\n", "kubectl-dovetail": "this is dovetail\n",
			} {
				if got, err := exec.CommandContext(t.Context(), filepath.Join(dir, name)).CombinedOutput(); err != nil || string(got) != want {
					t.Errorf("%s: %v, %q", name, err, got)
				}
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
				t.Errorf("%d files are there: %v", len(entries), err)
			}
		})
	}
}

// Without an argument the latest release goes where the person may write; each system and processor gets its own archive.
func TestInstallChooses(t *testing.T) {
	const releases = "https://github.com/dovetail-k8s/dovetail/releases"
	for _, tt := range []struct {
		uname string
		env   []string
		args  []string
		want  string // what is loaded
	}{
		{linux, nil, nil, releases + "/latest/download/dovetail-linux-amd64.tar.gz"},
		{"Linux aarch64", nil, nil, releases + "/latest/download/dovetail-linux-arm64.tar.gz"},
		{"Darwin arm64", nil, []string{"--version", "v0.2.0"}, releases + "/download/v0.2.0/dovetail-darwin-arm64.tar.gz"},
		{"Darwin x86_64", []string{"DOVETAIL_VERSION=0.2.0"}, nil, releases + "/download/v0.2.0/dovetail-darwin-amd64.tar.gz"},
	} {
		t.Run(tt.uname, func(t *testing.T) {
			platform := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(tt.want), "dovetail-"), ".tar.gz")
			files := directory(t, releaseFiles(t, platform))
			loads := filepath.Join(t.TempDir(), "loads")
			fake := fmt.Sprintf("#!/bin/sh\nfor a; do last=$a; done\necho \"$last\" >> %s\ncp %s/\"${last##*/}\" \"$5\"\n", loads, files)
			curl := t.TempDir()
			if err := os.WriteFile(filepath.Join(curl, "curl"), []byte(fake), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", curl+":"+os.Getenv("PATH"))
			dir := filepath.Join(t.TempDir(), "bin")
			args := append([]string{"--dir", dir}, tt.args...)
			out, err := install(t, tt.uname, append(slices.Clone(tools), "curl"), tt.env, args...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got, err := os.ReadFile(loads)
			if err != nil || !strings.HasSuffix(string(got), "\n"+tt.want+"\n") {
				t.Errorf("loaded %s, want %s at last: %v", got, tt.want, err)
			}
		})
	}
}

// What cannot be installed has a reason, and changes nothing.
func TestInstallRefuses(t *testing.T) {
	good := releaseFiles(t, "linux-amd64")
	spoiled := func(change func(map[string][]byte)) string {
		files := releaseFiles(t, "linux-amd64")
		change(files)
		return directory(t, files)
	}
	for _, tt := range []struct {
		name, uname, from, want string
		args                    []string
	}{
		{"another checksum", linux, spoiled(func(f map[string][]byte) { f["dovetail-linux-amd64.tar.gz"] = []byte("other") }), "has the checksum", nil},
		{
			"an archive that is not listed", linux, spoiled(func(f map[string][]byte) { f["checksums.txt"] = []byte("") }),
			"checksums.txt does not list dovetail-linux-amd64.tar.gz", nil,
		},
		{
			"the lab's archive is missing", linux, spoiled(func(f map[string][]byte) { delete(f, "dovetail-lab-linux-amd64.tar.gz") }),
			"dovetail-lab-linux-amd64.tar.gz cannot be read",
			[]string{"--lab"},
		},
		{"no release", linux, filepath.Join(t.TempDir(), "missing"), "checksums.txt cannot be read", nil},
		{"Windows", "MINGW64_NT-10.0 x86_64", directory(t, good), "dovetail-windows-amd64.tar.gz", nil},
		{"a machine", "Linux riscv64", directory(t, good), "no archive for riscv64", nil},
		{"an option", linux, directory(t, good), "unknown option --labs", []string{"--labs"}},
		{"a value is missing", linux, directory(t, good), "--version needs a value", []string{"--version"}},
		{"two places", linux, directory(t, good), "--version has no meaning beside it", []string{"--version", "v0.1.0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			out, err := install(t, tt.uname, tools, nil, append([]string{"--from", tt.from, "--dir", dir}, tt.args...)...)
			if err == nil || !strings.Contains(out, tt.want) {
				t.Errorf("%v, want %q:\n%s", err, tt.want, out)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
				t.Errorf("%d files are installed: %v", len(entries), err)
			}
		})
	}
}

// A program that runs keeps its file, and a download that breaks off at any line installs nothing.
func TestInstallIsWhole(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	from, dir := directory(t, releaseFiles(t, runtime.GOOS+"-"+runtime.GOARCH)), t.TempDir()
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	for n := range lines {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-s", "--", "--from", from, "--dir", dir)
		cmd.Stdin = strings.NewReader(strings.Join(lines[:n], ""))
		_, _ = cmd.CombinedOutput() // some are no scripts
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Fatalf("the first %d lines install %d files: %v", n, len(entries), err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-s", "--", "--from", from, "--dir", dir)
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "this is dovetail") {
		t.Errorf("%v\n%s", err, out)
	}
}
