# The formula of Homebrew, as `make release` fills it.
class Dovetail < Formula
  desc "Plan, explain and check the nodes of EKS clusters"
  homepage "https://github.com/dovetail-k8s/dovetail"
  version "{{ .Version }}"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/dovetail-k8s/dovetail/releases/download/{{ .TagName }}/dovetail-darwin-arm64.tar.gz"
      sha256 "{{ sha256 "dovetail-darwin-arm64.tar.gz" }}"
    end
    on_intel do
      url "https://github.com/dovetail-k8s/dovetail/releases/download/{{ .TagName }}/dovetail-darwin-amd64.tar.gz"
      sha256 "{{ sha256 "dovetail-darwin-amd64.tar.gz" }}"
    end
  end
  on_linux do
    on_arm do
      url "https://github.com/dovetail-k8s/dovetail/releases/download/{{ .TagName }}/dovetail-linux-arm64.tar.gz"
      sha256 "{{ sha256 "dovetail-linux-arm64.tar.gz" }}"
    end
    on_intel do
      url "https://github.com/dovetail-k8s/dovetail/releases/download/{{ .TagName }}/dovetail-linux-amd64.tar.gz"
      sha256 "{{ sha256 "dovetail-linux-amd64.tar.gz" }}"
    end
  end

  def install
    bin.install "dovetail"
    bin.install_symlink "dovetail" => "kubectl-dovetail"
    generate_completions_from_executable(bin/"dovetail", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/dovetail version")
    assert_match "m5.large", shell_output("#{bin}/dovetail instance-types m5.large")
  end
end
