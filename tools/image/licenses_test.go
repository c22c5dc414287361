package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const (
	isc = "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, " +
		"provided that the above copyright notice and this permission notice appear in all copies.\n\n" +
		"THE SOFTWARE IS PROVIDED \"AS IS\" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED " +
		"WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR " +
		"CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, " +
		"NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.\n"
	beer = "\"THE BEER-WARE LICENSE\" (Revision 42):\nphk@FreeBSD.ORG wrote this file. As long as you retain this notice you can do " +
		"whatever you want with this stuff. If we meet some day, and you think this stuff is worth it, you can buy me a beer in return. " +
		"Poul-Henning Kamp\n"
)

// A module's license is that of its root and of all directories down to the packages that are used, not of others.
func TestLicensesOfAModule(t *testing.T) {
	root := t.TempDir()
	apache, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "LICENSE"), string(apache))
	write(t, filepath.Join(root, "NOTICE.txt"), "Somebody wrote it.")
	write(t, filepath.Join(root, "license.go"), "package license")
	write(t, filepath.Join(root, "third_party/copied/LICENSE.md"), isc)
	write(t, filepath.Join(root, "unused/LICENSE"), beer)
	c := component{name: "example.com/m"}
	if err := c.read(root, []string{filepath.Join(root, "third_party/copied/sub"), root}); err == nil {
		t.Error("a directory that is missing passes")
	}
	if err := c.read(root, []string{filepath.Join(root, "third_party/copied"), root}); err != nil {
		t.Fatal(err)
	}
	if c.license != "Apache-2.0 AND ISC" {
		t.Errorf("license %q", c.license)
	}
	files := licenseTree([]component{c})
	for _, name := range []string{"LICENSE", "NOTICE.txt", "third_party/copied/LICENSE.md"} {
		if _, ok := files["licenses/example.com/m/"+name]; !ok {
			t.Errorf("%s is not in the image", name)
		}
	}
	if len(files) != 3 {
		t.Errorf("%d files", len(files))
	}
}

func TestLicensesThatAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"of its own", "You may use this on Tuesdays only.", "of its text is known"},
		{"not on the list", beer, "decide whether a release may contain it"},
		{"none", "", "of its text is known"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "LICENSE"), tt.text)
			c := component{name: "example.com/m"}
			if err := c.read(root, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	c := component{name: "example.com/m"}
	if err := c.read(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "has no license") {
		t.Errorf("a module without a license: %v", err)
	}
}
