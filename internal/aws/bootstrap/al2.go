package bootstrap

import (
	"fmt"
	"net/netip"
	"strings"
)

// al2 returns a MIME message with the user's parts first and a call of the image's bootstrap script last.
func al2(in Input, k kubelet) (string, error) {
	message := &multipartMessage{}
	if err := message.addUserParts(in.UserData, shellScript, allHeaders); err != nil {
		return "", err
	}
	message.add(shellScript, al2Script(in, k))
	return message.finish()
}

func al2Script(in Input, k kubelet) string {
	call := []string{fmt.Sprintf("/etc/eks/bootstrap.sh %s --apiserver-endpoint %s --b64-cluster-ca %s",
		shellQuote(in.Cluster.Name), shellQuote(in.Cluster.Endpoint), shellQuote(in.Cluster.CABundle))}
	if len(k.ClusterDNS) > 0 {
		if isIPv6(k.ClusterDNS[0]) {
			call = append(call, "--ip-family ipv6")
		}
		call = append(call, "--dns-cluster-ip "+shellQuote(k.ClusterDNS[0]))
	}
	call = append(call, "--use-max-pods false", "--kubelet-extra-args "+shellQuote(strings.Join(flags(in, k), " ")))
	if in.RAID0 {
		call = append(call, "--local-disks raid0")
	}
	return "#!/bin/bash -xe\n" +
		"exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n" +
		strings.Join(call, " \\\n")
}

func isIPv6(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Is6()
}
