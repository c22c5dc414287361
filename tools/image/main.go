// Command image builds what a release of Dovetail consists of: the container image for several platforms, archives of the programs, the
// charts, an SBOM for each program, and what they are installed from. It needs no container runtime and no network. The same commit gives
// the same files, byte for byte, on every host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `Usage:
  image build [flags]             build the image as an OCI layout and an archive, and print its digest
  image verify [flags]            build it again from a copy of the sources with an empty cache, and compare digests
  image extract [flags] FILE      write the binary of this host's platform from the archive to FILE
  image charts [flags]            pack the Helm charts
  image release [flags]           build all files of a release: archives of the programs, image, charts, SBOMs, checksums, installers
  image push [flags] REFERENCE... push the layout and its SBOMs to a registry, with the credentials of docker login
`

// imagePlatforms are those of EC2 instances with Linux.
var imagePlatforms = []string{"linux/amd64", "linux/arm64"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run is one run of the command.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("a command is missing\n" + usage)
	}
	var o options
	directory, defaults := "../../bin/image", imagePlatforms
	switch args[0] {
	case "charts":
		directory = "../../bin/charts"
	case "release":
		directory, defaults = "../../bin/release", product.platforms
	}
	flags := flag.NewFlagSet("image "+args[0], flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "../..", "root of the repository")
	flags.StringVar(&o.out, "out", directory, "directory of the results; it is replaced")
	platforms := flags.String("platforms", strings.Join(defaults, ","), "platforms to build for")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	o.platforms = strings.Split(*platforms, ",")
	switch args[0] {
	case "build":
		return build(ctx, o, out)
	case "verify":
		return verify(ctx, o, out)
	case "charts":
		return packCharts(ctx, o, out)
	case "release":
		return buildRelease(ctx, o, out)
	case "extract":
		if flags.NArg() != 1 {
			return errors.New("extract takes the name of one file")
		}
		return extractBinary(o, flags.Arg(0))
	case "push":
		return push(ctx, o, flags.Args(), out)
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}
