#!/bin/sh
# `make rules`: the study in this folder, from nothing. Each run is a clone of the last commit, below scratch/rules, that
# shares this project's scratch: the dataset, networks that are trained already, and draws. A run that is there is only
# brought up to date. NETWORKS=folder has resnet56-4bfd9763.th and ffdnet_color.pth, if `aces import` cannot fetch them.
set -eu
here=$(pwd) runs=$(pwd)/scratch/rules
mkdir -p "$runs"

# run NAME COMMAND...: the command in the clone $runs/NAME.
run() {
    echo "rules: $1"
    folder=$runs/$1 && shift
    if [ ! -d "$folder" ]; then
        git clone --quiet "$here" "$folder"
        ln -s "$here/scratch" "$folder/scratch"
        echo scratch >> "$folder/.git/info/exclude"
    fi
    cd "$folder"
    git fetch --quiet
    git reset --quiet --hard origin/HEAD
    "$@"
    cd "$here"
}

# drawn [-S NAME=VALUE]: the counts of the default run with other parameters.
drawn() { dvc exp run --quiet "$@" sample; }

# imported NAME FILE: checkpoints/NAME.safetensors, from the folder NETWORKS if that is given.
networks=${NETWORKS:+$(cd "$NETWORKS" && pwd)}
imported() {
    [ -f "checkpoints/$1.safetensors" ] ||
        aces import "$([ -n "$networks" ] && echo "$networks/$2" || echo "$1")" --dataset cifar10 --out "checkpoints/$1.safetensors"
}

published() {
    imported resnet56 resnet56-4bfd9763.th
    imported ffdnet ffdnet_color.pth
    aces profile use pretrained
    drawn
}

run gaussian-0.25 drawn
run gaussian-0.5 drawn -S sigma=0.5
run gaussian-1 drawn -S sigma=1.0
run consistency drawn -S certify.method=consistency
run macer drawn -S certify.method=macer
run smoothadv drawn -S certify.method=smoothadv
run published published

aces rules --made-by 'make rules' --out reports/published \
    "gaussian, sigma 0.25=$runs/gaussian-0.25" \
    "gaussian, sigma 0.5=$runs/gaussian-0.5" \
    "gaussian, sigma 1=$runs/gaussian-1" \
    "consistency, sigma 0.25=$runs/consistency" \
    "macer, sigma 0.25=$runs/macer" \
    "smoothadv, sigma 0.25=$runs/smoothadv" \
    "published: FFDNet and ResNet-56, sigma 0.12=$runs/published"
