package bootstrap

import (
	"fmt"
	"strings"
)

// windows is a PowerShell script that calls the image's bootstrap script after the user's own lines.
func windows(in Input, k kubelet) string {
	lines := []string{"<powershell>"}
	if own := strings.TrimSpace(in.UserData); own != "" {
		lines = append(lines, own)
	}
	call := fmt.Sprintf("& $EKSBootstrapScriptFile -EKSClusterName '%s' -APIServerEndpoint '%s'", in.Cluster.Name, in.Cluster.Endpoint)
	if in.Cluster.CABundle != "" {
		call += fmt.Sprintf(" -Base64ClusterCA '%s'", in.Cluster.CABundle)
	}
	call += fmt.Sprintf(" -KubeletExtraArgs '%s'", strings.Join(flags(in, k), " "))
	if len(k.ClusterDNS) > 0 {
		call += fmt.Sprintf(" -DNSClusterIP '%s'", k.ClusterDNS[0])
	}
	lines = append(lines,
		`[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"`,
		call,
		"</powershell>")
	return strings.Join(lines, "\n")
}
