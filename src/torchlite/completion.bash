_torchlite_complete()
{
    local typed=($COMP_LINE) choices
    [[ "${typed[0]##*/}" == python* && "${typed[1]##*/}" == train.py && -f "${typed[1]}" ]] || return
    local line="python train.py${COMP_LINE#*train.py}"
    choices=$(COMP_LINE="$line" COMP_POINT=${#line} "${typed[0]}" "${typed[1]}" -sc query=bash 2>/dev/null) || return
    COMPREPLY=($(compgen -o nospace -o default -W "$choices" -- "${COMP_WORDS[COMP_CWORD]}"))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _torchlite_complete python python3
