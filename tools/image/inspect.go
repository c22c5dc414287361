package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/buildinfo"
	"debug/elf"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// inspect checks the images of a layout, as a user would get them.
func inspect(layout string, parts []part) error {
	index, err := openLayout(layout)
	if err != nil {
		return err
	}
	for _, p := range parts {
		image, err := imageFor(index, p.platform)
		if err == nil {
			err = inspectImage(image, p.platform.Architecture)
		}
		if err != nil {
			return fmt.Errorf("the image for %s is wrong: %w", p.platform, err)
		}
	}
	return nil
}

// inspectImage checks that an image is well formed, that its configuration gives no more rights than needed, and that its files are
// those that the program needs and no others.
func inspectImage(image v1.Image, arch string) error {
	if err := validate.Image(image); err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	headers, files, err := readFiles(image)
	if err != nil {
		return err
	}
	return errors.Join(
		checkConfig(config), checkHeaders(headers, config.Created.Time), checkCertificates(files[certificatesPath]),
		checkZones(files), checkBinary(files[binaryPath], arch),
	)
}

// readFiles reads all files of an image, after its layers were put on top of each other.
func readFiles(image v1.Image) (headers []*tar.Header, files map[string][]byte, err error) {
	content := mutate.Extract(image)
	defer content.Close() // only read
	files = map[string][]byte{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, files, nil
		}
		if err != nil {
			return nil, nil, err
		}
		headers = append(headers, h)
		if files[path.Clean(h.Name)], err = io.ReadAll(r); err != nil {
			return nil, nil, err
		}
	}
}

// checkConfig checks how a container is started.
func checkConfig(config *v1.ConfigFile) error {
	var wrong []error
	reject := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	c := config.Config
	reject(c.User != user+":"+user, "user %q is not %s by number: kubelets check runAsNonRoot by number only", c.User, user)
	reject(!slices.Equal(c.Entrypoint, []string{"/" + binaryPath}), "entrypoint %q", c.Entrypoint)
	reject(len(c.Cmd) > 0, "arguments %q: the chart passes its own", c.Cmd)
	reject(len(c.Volumes) > 0, "volumes %v: the root file system is read-only", c.Volumes)
	reject(len(c.ExposedPorts) != len(ports), "ports %v", c.ExposedPorts)
	for _, port := range ports {
		_, exposed := c.ExposedPorts[port]
		reject(!exposed, "port %s is not exposed", port)
	}
	for _, variable := range c.Env {
		name, _, _ := strings.Cut(variable, "=")
		reject(name != "PATH" && name != "SSL_CERT_FILE", "environment variable %s", name)
	}
	for _, name := range []string{"source", "revision", "version", "licenses", "created"} {
		reject(c.Labels["org.opencontainers.image."+name] == "", "label %s is missing", name)
	}
	created, err := time.Parse(time.RFC3339, c.Labels["org.opencontainers.image.created"])
	reject(err != nil || !created.Equal(config.Created.Time), "label created is not the time of creation")
	return errors.Join(wrong...)
}

// checkHeaders checks owners, rights and times of all files.
func checkHeaders(headers []*tar.Header, at time.Time) error {
	var wrong []error
	for _, h := range headers {
		name, want := strings.TrimSuffix(h.Name, "/"), int64(0o644)
		switch {
		case name == temporary:
			want = 0o1777
		case h.Typeflag == tar.TypeDir || name == binaryPath:
			want = 0o755
		case h.Typeflag != tar.TypeReg:
			wrong = append(wrong, fmt.Errorf("%s is neither a file nor a directory", name))
		}
		if h.Mode != want || h.Uid != 0 || h.Gid != 0 || h.Uname+h.Gname != "" || !h.ModTime.Equal(at) {
			wrong = append(wrong, fmt.Errorf("%s: mode %o, owner %d:%d, time %s", name, h.Mode, h.Uid, h.Gid, h.ModTime.UTC()))
		}
	}
	return errors.Join(wrong...)
}

// awsRoots are the roots that the endpoints of AWS have certificates of: https://www.amazontrust.com/repository/.
var awsRoots = []string{"Amazon Root CA 1", "Amazon Root CA 2", "Amazon Root CA 3", "Amazon Root CA 4"}

// checkCertificates checks that the bundle parses, and has the roots of AWS.
func checkCertificates(bundle []byte) error {
	missing := slices.Clone(awsRoots)
	for block, rest := pem.Decode(bundle); ; block, rest = pem.Decode(rest) {
		if block == nil {
			if len(rest) > 0 || len(missing) > 0 {
				return fmt.Errorf("root certificates: %d bytes are not PEM; missing: %q", len(rest), missing)
			}
			return nil
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("root certificates: %w", err)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == certificate.Subject.CommonName })
	}
}

// minZones is fewer than any release of the time zones has; release 2025c has 598.
const minZones = 500

// checkZones checks that all time zones load.
func checkZones(files map[string][]byte) error {
	found := 0
	for name, content := range files {
		zone, ok := strings.CutPrefix(name, zonesPath+"/")
		if !ok || len(content) == 0 {
			continue // a directory
		}
		if _, err := time.LoadLocationFromTZData(zone, content); err != nil {
			return fmt.Errorf("time zone %s: %w", zone, err)
		}
		found++
	}
	if found < minZones {
		return fmt.Errorf("there are only %d time zones", found)
	}
	return nil
}

// checkBinary checks that the program runs on the platform without any other file, and has no path of the host that compiled it.
func checkBinary(program []byte, arch string) error {
	binary, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return err
	}
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if binary.Machine != machine {
		return fmt.Errorf("the binary is for %s, not for %s", binary.Machine, machine)
	}
	if slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return errors.New("the binary needs a dynamic linker")
	}
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-trimpath" && s.Value == "true" }) {
		return errors.New("the binary is compiled without -trimpath")
	}
	if bytes.Contains(program, []byte("text/template.(*state).evalField")) {
		return errors.New("the binary runs text templates, so the linker keeps every method of all types: find the import with " +
			"go build -ldflags=-dumpdep")
	}
	return nil
}
