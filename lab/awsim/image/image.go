// Package image lists the AMIs that EKS publishes for its nodes, and the SSM parameters with their IDs.
//
// The list is made up but stable: real names and parameter paths, IDs derived from the name and the region. Each
// family has two releases per Kubernetes version, the older one deprecated only where the family itself is.
package image

import (
	"crypto/sha256"
	"fmt"
	"time"
)

// Image is an AMI.
type Image struct {
	ID           string
	Name         string
	Description  string
	OwnerID      string
	OwnerAlias   string // "amazon", empty for images of customers
	Architecture string // "x86_64" or "arm64"
	Platform     string // "windows" or empty
	Created      time.Time
	Deprecated   time.Time // when it counts as deprecated
	RootDevice   string
	Disks        []Disk
	// Parameters are the SSM parameters with this image's ID as their value.
	Parameters []string
}

// Disk is a volume that an instance of the image gets.
type Disk struct {
	Device     string
	SnapshotID string
	SizeGiB    int
}

// release is one build of a family; versions and dates are of the kind that EKS publishes.
type release struct {
	version string // "20260715" for Amazon Linux, "1.60.0" for Bottlerocket
	commit  string // Bottlerocket appends it to the image name
	created time.Time
}

func amazonLinuxReleases() []release {
	return []release{
		{version: "20260610", created: time.Date(2026, 6, 11, 3, 21, 9, 0, time.UTC)},
		{version: "20260715", created: time.Date(2026, 7, 16, 2, 58, 41, 0, time.UTC)},
	}
}

func bottlerocketReleases() []release {
	return []release{
		{version: "1.58.0", commit: "3d1ff8a2", created: time.Date(2026, 5, 27, 19, 4, 12, 0, time.UTC)},
		{version: "1.59.0", commit: "a7e0c4d9", created: time.Date(2026, 7, 8, 20, 11, 37, 0, time.UTC)},
	}
}

// Kubernetes returns the minor versions for which images exist, oldest first.
func Kubernetes() []string { return []string{"1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"} }

// al2Last is the last Kubernetes version with Amazon Linux 2 images; windows2025First the first with Windows Server
// 2025.
const (
	al2Last          = "1.32"
	windows2025First = "1.35"
)

// Owners of the public images in the commercial partition.
const (
	eksOwner          = "602401143452"
	bottlerocketOwner = "092701018921"
	windowsOwner      = "801119661308"
)

// List returns all public images of a region in a fixed order.
func List(region string) []Image {
	var all []Image
	for _, version := range Kubernetes() {
		all = append(all, al2023(version)...)
		if version <= al2Last {
			all = append(all, al2(version)...)
		}
		all = append(all, bottlerocket(version)...)
		all = append(all, windows(version)...)
	}
	for i := range all {
		img := &all[i]
		img.OwnerAlias = "amazon"
		img.ID = id("ami", region, img.Name)
		img.Deprecated = img.Created.AddDate(2, 0, 0)
		for d := range img.Disks {
			img.Disks[d].SnapshotID = id("snap", region, img.Name+img.Disks[d].Device)
		}
	}
	return all
}

// Parameters returns the value of every public SSM parameter that names an image.
func Parameters(region string) map[string]string {
	values := map[string]string{}
	for _, img := range List(region) {
		for _, name := range img.Parameters {
			values[name] = img.ID
		}
	}
	return values
}

func id(kind, region, name string) string {
	sum := sha256.Sum256([]byte(kind + " " + region + " " + name))
	return fmt.Sprintf("%s-0%x", kind, sum[:9])[:len(kind)+18]
}

func al2023(version string) []Image {
	var out []Image
	releases := amazonLinuxReleases()
	for _, arch := range []string{"x86_64", "arm64"} {
		for _, variant := range []string{"standard", "nvidia", "neuron"} {
			if arch == "arm64" && variant == "neuron" {
				continue
			}
			for i, r := range releases {
				name := fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-v%s", arch, variant, version, r.version)
				path := fmt.Sprintf("/aws/service/eks/optimized-ami/%s/amazon-linux-2023/%s/%s/", version, arch, variant)
				out = append(out, Image{
					Name: name, OwnerID: eksOwner, Architecture: arch, Created: r.created, RootDevice: "/dev/xvda",
					Description: fmt.Sprintf("EKS-optimized Kubernetes node based on Amazon Linux 2023, (k8s: %s, variant: %s)", version, variant),
					Disks:       []Disk{{Device: "/dev/xvda", SizeGiB: 20}},
					Parameters:  parameters(path, name, i == len(releases)-1),
				})
			}
		}
	}
	return out
}

func al2(version string) []Image {
	var out []Image
	releases := amazonLinuxReleases()
	for _, v := range []struct{ directory, prefix, arch string }{
		{"amazon-linux-2", "amazon-eks-node", "x86_64"},
		{"amazon-linux-2-arm64", "amazon-eks-arm64-node", "arm64"},
		{"amazon-linux-2-gpu", "amazon-eks-gpu-node", "x86_64"},
	} {
		for i, r := range releases {
			name := fmt.Sprintf("%s-%s-v%s", v.prefix, version, r.version)
			path := fmt.Sprintf("/aws/service/eks/optimized-ami/%s/%s/", version, v.directory)
			out = append(out, Image{
				Name: name, OwnerID: eksOwner, Architecture: v.arch, Created: r.created, RootDevice: "/dev/xvda",
				Description: fmt.Sprintf("EKS Kubernetes Worker AMI with AmazonLinux2 image, (k8s: %s)", version),
				Disks:       []Disk{{Device: "/dev/xvda", SizeGiB: 20}},
				Parameters:  parameters(path, name, i == len(releases)-1),
			})
		}
	}
	return out
}

// parameters of an Amazon Linux image: one by its name, and "recommended" on the newest.
func parameters(path, name string, newest bool) []string {
	out := []string{path + name + "/image_id"}
	if newest {
		out = append(out, path+"recommended/image_id")
	}
	return out
}

func bottlerocket(version string) []Image {
	var out []Image
	releases := bottlerocketReleases()
	for _, variant := range []string{"aws-k8s-" + version, "aws-k8s-" + version + "-nvidia"} {
		for _, arch := range []string{"x86_64", "arm64"} {
			for i, r := range releases {
				path := fmt.Sprintf("/aws/service/bottlerocket/%s/%s/", variant, arch)
				img := Image{
					Name:    fmt.Sprintf("bottlerocket-%s-%s-v%s-%s", variant, arch, r.version, r.commit),
					OwnerID: bottlerocketOwner, Architecture: arch, Created: r.created, RootDevice: "/dev/xvda",
					Description: fmt.Sprintf("bottlerocket-%s-%s-v%s", variant, arch, r.version),
					Disks:       []Disk{{Device: "/dev/xvda", SizeGiB: 2}, {Device: "/dev/xvdb", SizeGiB: 20}},
					Parameters:  []string{path + r.version + "/image_id", path + r.version + "-" + r.commit + "/image_id"},
				}
				if i == len(releases)-1 {
					img.Parameters = append(img.Parameters, path+"latest/image_id")
				}
				out = append(out, img)
			}
		}
	}
	return out
}

func windows(version string) []Image {
	var out []Image
	releases := []struct {
		date    string
		created time.Time
	}{
		{"2026.06.10", time.Date(2026, 6, 12, 17, 40, 3, 0, time.UTC)},
		{"2026.07.15", time.Date(2026, 7, 17, 18, 2, 55, 0, time.UTC)},
	}
	for _, server := range []string{"2019", "2022", "2025"} {
		if server == "2025" && version < windows2025First {
			continue
		}
		for _, edition := range []string{"Core", "Full"} {
			for i, r := range releases {
				base := fmt.Sprintf("Windows_Server-%s-English-%s-EKS_Optimized-%s", server, edition, version)
				img := Image{
					Name: base + "-" + r.date, OwnerID: windowsOwner, Architecture: "x86_64", Platform: "windows", Created: r.created,
					RootDevice:  "/dev/sda1",
					Description: fmt.Sprintf("Microsoft Windows Server %s %s EKS Optimized %s AMI", server, edition, version),
					Disks:       []Disk{{Device: "/dev/sda1", SizeGiB: 50}},
				}
				if i == len(releases)-1 {
					img.Parameters = []string{"/aws/service/ami-windows-latest/" + base + "/image_id"}
				}
				out = append(out, img)
			}
		}
	}
	return out
}
