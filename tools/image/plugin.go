package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// pluginPlatforms are those that kubectl users have.
var pluginPlatforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

// pluginName is the name of the binary: kubectl runs it for `kubectl dovetail`.
const pluginName = "kubectl-dovetail"

// pluginArchive is the name of the archive for a platform.
func pluginArchive(platform string) string {
	return pluginName + "-" + strings.ReplaceAll(platform, "/", "-") + ".tar.gz"
}

// plugin writes an archive of the binary for each platform, their checksums and the manifest for krew.
func plugin(ctx context.Context, o options, out io.Writer) error {
	if err := checkToolchain(o.root); err != nil {
		return err
	}
	r, err := readRelease(ctx, o.root)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	sums := map[string]string{}
	for _, platform := range o.platforms {
		packed, err := target{r, platform}.pluginArchive(ctx)
		if err != nil {
			return err
		}
		name := pluginArchive(platform)
		sum := sha256.Sum256(packed)
		sums[name] = hex.EncodeToString(sum[:])
		if err := os.WriteFile(filepath.Join(o.out, name), packed, 0o644); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s  %s\n", sums[name], filepath.Join(o.out, name)); err != nil {
			return err
		}
	}
	return r.describePlugin(o, sums)
}

// describePlugin writes checksums and krew's manifest beside the archives.
func (r release) describePlugin(o options, sums map[string]string) error {
	var list strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&list, "%s  %s\n", sums[name], name)
	}
	if err := os.WriteFile(filepath.Join(o.out, "checksums.txt"), []byte(list.String()), 0o644); err != nil {
		return err
	}
	pattern, err := os.ReadFile(filepath.Join(o.root, ".krew.yaml"))
	if err != nil {
		return err
	}
	manifest, err := r.fillKrew(string(pattern), sums)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, "dovetail.krew.yaml"), manifest, 0o644)
}

// fillKrew fills the template of krew's manifest. It has the function and the field of krew-release-bot, which fills it for the index
// of krew. A platform without an archive is an error.
func (r release) fillKrew(pattern string, sums map[string]string) ([]byte, error) {
	tag := struct{ TagName string }{r.version}
	add := func(address, _ string) (string, error) {
		url, err := template.New("url").Parse(address)
		if err != nil {
			return "", err
		}
		var filled strings.Builder
		if err := url.Execute(&filled, tag); err != nil {
			return "", err
		}
		name := filled.String()[strings.LastIndex(filled.String(), "/")+1:]
		sum, ok := sums[name]
		if !ok {
			return "", fmt.Errorf("there is no archive %s", name)
		}
		return "uri: " + filled.String() + "\n    sha256: " + strconv.Quote(sum), nil
	}
	manifest, err := template.New(".krew.yaml").Funcs(template.FuncMap{"addURIAndSha": add}).Option("missingkey=error").Parse(pattern)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = manifest.Execute(&out, tag)
	return out.Bytes(), err
}

// pluginArchive compiles the plugin and packs it with the license.
func (t target) pluginArchive(ctx context.Context) ([]byte, error) {
	temp, err := os.MkdirTemp("", "dovetail-plugin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp) // nothing that is needed
	binary := filepath.Join(temp, pluginName)
	if err := t.compile(ctx, binary); err != nil {
		return nil, err
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(t.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	name := pluginName
	if strings.HasPrefix(t.platform, "windows/") {
		name += ".exe"
	}
	var out bytes.Buffer
	packed, err := gzip.NewWriterLevel(&out, compression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(packed)
	for _, f := range []struct {
		name    string
		content []byte
		mode    int64
	}{{"LICENSE", license, 0o644}, {name, program, 0o755}} {
		h := &tar.Header{Name: f.name, Typeflag: tar.TypeReg, Size: int64(len(f.content)), Mode: f.mode, ModTime: t.created}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.Close(), packed.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
