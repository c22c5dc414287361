package main

import (
	"bytes"
	"debug/buildinfo"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const root = "../.."

// host is the platform that tests build for, because they run the binary. `make image` builds and inspects all of them.
var host = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// shared is the image that most tests read. It is built once.
var shared struct {
	once   sync.Once
	dir    string
	digest v1.Hash
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// current is the release that is checked out.
func current(t *testing.T) release {
	t.Helper()
	r, err := readRelease(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// built is the options of the shared image, and its digest.
func built(t *testing.T) (options, v1.Hash) {
	t.Helper()
	r := current(t)
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "dovetail-image-test-"); shared.err == nil {
			shared.digest, shared.err = r.build(t.Context(), options{root, shared.dir, []string{host.String()}})
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return options{root, shared.dir, []string{host.String()}}, shared.digest
}

// unpacked is the image of the archive, and a directory with its files.
func unpacked(t *testing.T) (v1.Image, string) {
	t.Helper()
	o, digest := built(t)
	index, err := openArchive(filepath.Join(o.out, archiveName), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if got, err := index.Digest(); err != nil || got != digest {
		t.Errorf("the archive has image %s (%v), want %s", got, err, digest)
	}
	image, err := imageFor(index, host)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := extractImage(image, dir); err != nil {
		t.Fatal(err)
	}
	return image, dir
}

// The same commit gives the same bytes, wherever the sources are.
func TestImageIsReproducible(t *testing.T) {
	o, first := built(t)
	r := current(t)
	r.source = filepath.Join(t.TempDir(), "elsewhere")
	if err := copySources(t.Context(), root, r.source); err != nil {
		t.Fatal(err)
	}
	again := options{root, filepath.Join(t.TempDir(), "image"), o.platforms}
	second, err := r.build(t.Context(), again)
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("digests differ: %s and %s", first, second)
	}
	for _, name := range []string{archiveName, "layout/index.json", digestName} {
		a, err1 := os.ReadFile(filepath.Join(o.out, name))
		b, err2 := os.ReadFile(filepath.Join(again.out, name))
		if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v, %v", name, err1, err2)
		}
	}
}

// What make has compiled is not compiled again for the image.
func TestImageIsCompiledWithTheFlagsOfMake(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var quoted []string
	for _, flag := range flags {
		if strings.Contains(flag, " ") {
			flag = "'" + flag + "'"
		}
		quoted = append(quoted, flag)
	}
	for _, want := range []string{"FLAGS := " + strings.Join(quoted, " ") + "\n", "export GOFLAGS := ", "export CGO_ENABLED := 0\n"} {
		if !strings.Contains(string(text), "\n"+want) {
			t.Errorf("Makefile has no line %q", want)
		}
	}
}

// inImage runs the binary with nothing but the image's files, as the image's user. Only root may do that; others run it in place.
func inImage(t *testing.T, image v1.Image, dir string, args ...string) string {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, config.Config.Entrypoint[0]), args...)
	cmd.Env, cmd.Dir = config.Config.Env, dir
	if os.Geteuid() == 0 {
		makeReachable(t, dir)
		cmd.Path, cmd.Dir = config.Config.Entrypoint[0], config.Config.WorkingDir
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// makeReachable lets all users enter the directories above dir that belong to the test.
func makeReachable(t *testing.T, dir string) {
	t.Helper()
	for ; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBinaryRunsWithNothingButTheImage(t *testing.T) {
	image, dir := unpacked(t)
	r := current(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "dovetail " + r.version + " (commit " + r.revision[:12] + ", " + runtime.Version() + " linux/" + runtime.GOARCH + ")"},
		{[]string{"--help"}, "Usage:\n  dovetail"},
		{[]string{"controller", "--help"}, "--cluster-name"},
		{[]string{"instance-types", "--limit", "1"}, "a1.medium"},
	} {
		if got := inImage(t, image, dir, tt.args...); !strings.Contains(got, tt.want) {
			t.Errorf("%q printed:\n%s\nwant %q", tt.args, got, tt.want)
		}
	}
}

// The image has the program, what it needs, and nothing that can run besides it.
func TestFilesOfTheImage(t *testing.T) {
	_, dir := unpacked(t)
	top, programs := map[string]bool{}, []string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		top[strings.Split(name, "/")[0]] = true
		info, err := d.Info()
		if err == nil && info.Mode()&0o111 != 0 {
			programs = append(programs, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(programs, []string{binaryPath}) {
		t.Errorf("programs: %q", programs)
	}
	if len(top) != 3 || !top["etc"] || !top["usr"] || !top["licenses"] {
		t.Errorf("top directories: %v", top)
	}
}

// The SBOM names each module that is linked into the binary, and the image has the text of its license.
func TestSBOMNamesEachModule(t *testing.T) {
	_, dir := unpacked(t)
	file, err := os.Open(filepath.Join(dir, sbomPath))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	doc, err := spdxjson.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(filepath.Join(dir, binaryPath))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{} // versions by name
	for _, p := range doc.Packages {
		listed[p.PackageName] = p.PackageVersion
		if p.PackageLicenseDeclared == "" {
			t.Errorf("package %s has no license", p.PackageName)
		}
	}
	for _, dep := range info.Deps {
		if listed[dep.Path] != dep.Version {
			t.Errorf("module %s %s is listed as %q", dep.Path, dep.Version, listed[dep.Path])
		}
		texts, err := os.ReadDir(filepath.Join(dir, licensesPath, dep.Path))
		if err != nil || len(texts) == 0 {
			t.Errorf("module %s has no license text: %v", dep.Path, err)
		}
	}
	if want := len(info.Deps) + 5; len(doc.Packages) != want { // image, product, standard library, certificates, time zones
		t.Errorf("%d packages, want %d", len(doc.Packages), want)
	}
	if listed["stdlib"] != strings.TrimPrefix(runtime.Version(), "go") || listed["tzdata"] == "" || listed[certificatesModule] == "" {
		t.Errorf("the standard library or data is not listed: %v", listed)
	}
}

func TestInspectRejects(t *testing.T) {
	good := func() *v1.ConfigFile {
		r := current(t)
		config := &v1.ConfigFile{Created: v1.Time{Time: r.created}, Config: v1.Config{
			User: "65532:65532", Entrypoint: []string{"/usr/bin/dovetail"}, Labels: r.annotations("MIT"),
			ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}}, Env: []string{"PATH=/usr/bin"},
		}}
		return config
	}
	if err := checkConfig(good()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		want  string
		spoil func(*v1.Config)
	}{
		{"user", func(c *v1.Config) { c.User = "nonroot" }},
		{"entrypoint", func(c *v1.Config) { c.Entrypoint = []string{"/bin/sh", "-c"} }},
		{"arguments", func(c *v1.Config) { c.Cmd = []string{"controller"} }},
		{"volumes", func(c *v1.Config) { c.Volumes = map[string]struct{}{"/data": {}} }},
		{"port 8081/tcp is not exposed", func(c *v1.Config) { delete(c.ExposedPorts, "8081/tcp") }},
		{"environment variable AWS_REGION", func(c *v1.Config) { c.Env = append(c.Env, "AWS_REGION=us-east-1") }},
		{"label revision", func(c *v1.Config) { delete(c.Labels, "org.opencontainers.image.revision") }},
		{"time of creation", func(c *v1.Config) { c.Labels["org.opencontainers.image.created"] = "2000-01-01T00:00:00Z" }},
	} {
		config := good()
		tt.spoil(&config.Config)
		if err := checkConfig(config); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
	if err := checkCertificates([]byte("not PEM")); err == nil {
		t.Error("a bundle without certificates passes")
	}
	if err := checkZones(nil); err == nil {
		t.Error("an image without time zones passes")
	}
}
